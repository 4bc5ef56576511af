"""Stores for data skipping, as runs and tables know them: found by the table's UUID, and kept true."""
