"""The audit of who changed which files, when and why: its chain, its evidence, and the records that it confirms."""
