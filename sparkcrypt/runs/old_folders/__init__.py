"""Folders that swaps left: compared, reconciled, moved out of reach, expired, rolled back, and orphans among them."""
