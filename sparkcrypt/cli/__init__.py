"""The command line `sparkcrypt …`: a package for each kind of command, and `frame` for their common code."""
