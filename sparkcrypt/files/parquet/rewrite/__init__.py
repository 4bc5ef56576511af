"""Rewrites a file under another encryption, chunk by chunk, without decoding a page."""
