"""A store as it is specified: its files read, and their rows made; nothing is trusted here."""
