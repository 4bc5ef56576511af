"""Stores that queries may trust: encrypted, with a sidecar that authenticates all their files."""
