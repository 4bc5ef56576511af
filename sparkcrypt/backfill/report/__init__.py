"""Reports of runs: the outcome of a unit, the report of a run, and its progress."""
