"""Real services for tests and demos: each is started, waited for, and stopped by its own id; nothing is left behind.

Import-light on purpose: nothing here needs pytest, and pyspark is found, never imported.
"""

from __future__ import annotations


class ServiceUnavailableError(Exception):
    """A service cannot be had on this machine; the message says why, and what would help."""


class ServiceFailedError(Exception):
    """A service was started and did not come up; the message holds the end of its log."""
