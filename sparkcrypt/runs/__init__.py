"""Runs, which bring tables to their plans without losing data, and what is done with keys and old files after them."""
