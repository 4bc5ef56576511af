"""Access to columns: the log of access events, written and read, and what a principal would get of a table."""
