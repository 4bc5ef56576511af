"""The target of a run: a table or a folder, its units, and the folders that are in use."""
