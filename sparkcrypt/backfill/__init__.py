"""Runs: from drift to done, with nothing lost; state, lock, journal and audit here need no Spark."""
