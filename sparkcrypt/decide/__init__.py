"""Decisions for one file: which table it is of, how it is encrypted, and whether it may be believed."""
