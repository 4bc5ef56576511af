"""What a run works on: a table or a folder, its units, and which folders are in use."""
