"""The journal of a run: its records, their chain, and the states of the run and its units that follow from them."""
