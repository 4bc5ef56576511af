"""Who changed which files, when and why: the audit's chain, its evidence, and what is believed by it."""
