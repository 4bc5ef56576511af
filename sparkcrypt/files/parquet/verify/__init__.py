"""Verifies files: authenticates every module, checks the structure, and digests the content."""
