"""Passes over many tables: choice, refusals, plans, runs and reports."""
