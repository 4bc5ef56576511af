"""Rewrites a file under another encryption, with its streams' content unchanged."""
