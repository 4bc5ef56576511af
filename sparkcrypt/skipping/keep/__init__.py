"""Stores made of data files and kept true: bounds, lists, filters and partitions, refreshed and verified."""
