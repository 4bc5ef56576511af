"""One run over one target, under its lock: from the survey to the report."""
