"""Stores for data skipping of the catalog's tables: found by the table's UUID, and updated after runs."""
