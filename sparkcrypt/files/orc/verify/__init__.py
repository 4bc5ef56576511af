"""Verifies files, with code that is separate from the rewrite's."""
