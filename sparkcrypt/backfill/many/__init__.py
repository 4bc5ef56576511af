"""Passes over many tables: which are chosen, held back, planned, run and reported."""
