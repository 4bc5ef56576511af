"""Execution of one run over one target, under the target's lock: from the survey to the report."""
