"""Real services for tests and demos: each is started, waited for, and stopped by its id, and leaves nothing behind.

Imports are few on purpose: no module needs pytest, and pyspark is located, never imported.
"""

from __future__ import annotations


class ServiceUnavailableError(Exception):
    """A service is unavailable on this machine; the message names the reason and a remedy."""


class ServiceFailedError(Exception):
    """A service was started and did not become ready; the message contains the end of its log."""
