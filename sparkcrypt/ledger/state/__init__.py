"""The state of runs: the stores of their records, the lock of a table, and the MACs that authenticate records."""
