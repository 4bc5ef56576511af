"""Runs, which bring tables to their plans without losing data; state, lock, journal and audit need no Spark."""
