"""Passes over tables: chosen, refused, planned, each run under its lock, and reported."""
