"""Who reads what: the log of access events, written and read, and what a principal would get of a table."""
