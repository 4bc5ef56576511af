"""What runs tell people and machines: the outcome of a unit, the report of a run, its progress."""
