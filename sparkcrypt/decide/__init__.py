"""Decisions for one file: its table, how it is encrypted, and whether it may be trusted."""
