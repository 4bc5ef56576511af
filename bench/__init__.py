"""Benchmarks: each measures its contenders side by side, on the same bytes, in one run, and records the results."""
