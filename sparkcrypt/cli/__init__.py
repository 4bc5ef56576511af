"""The command line: `sparkcrypt …`, with a room for each kind of command, and one for what they share."""
