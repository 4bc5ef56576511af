"""The steps of one unit: list, stage, verify, swap, move old files and record; and recovery after a crash."""
