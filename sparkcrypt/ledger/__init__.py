"""What is recorded of runs: units, outcomes and proofs; the state directory, journals, and the audit of each table."""
