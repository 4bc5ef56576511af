"""The journal of a run: its records, their chain, and how far run and units have come by them."""
