"""Settings of all property tests: examples have no deadline."""

from __future__ import annotations

from hypothesis import settings

# A test's duration is not a property of the code: under load, a millisecond's example may take a second.
settings.register_profile("sparkcrypt", deadline=None)
settings.load_profile("sparkcrypt")
