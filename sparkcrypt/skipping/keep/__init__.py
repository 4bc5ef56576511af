"""Stores made of data files and kept true: bounds, partitions, refreshed and verified."""
