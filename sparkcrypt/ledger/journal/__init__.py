"""The journal of a run: its records, their chain, and the status of the run and of its units that follow from them."""
