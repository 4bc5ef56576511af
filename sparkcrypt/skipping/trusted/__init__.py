"""Stores that queries may go by: written under keys, with a sidecar, and opened only as they were written."""
