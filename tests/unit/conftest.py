"""What holds for every property test: its examples have no deadline."""

from __future__ import annotations

from hypothesis import settings

# A test's time is no property of the code: under load, an example of a millisecond may take a second.
settings.register_profile("sparkcrypt", deadline=None)
settings.load_profile("sparkcrypt")
