"""Fixtures of these tests."""

from __future__ import annotations

import pytest

from sparkcrypt.runs.old_folders import old_folder
from sparkcrypt.runs.passes import units
from tests.spark.fixtures import lake, private_jar
from tests.spark.killing import clock, unit_a_batch
from tests.spark.restored_state import copies

__all__ = ["clock", "copies", "lake", "private_jar", "unit_a_batch"]


@pytest.fixture(autouse=True)
def soon_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time between two listings, and the time to wait for writers."""
    monkeypatch.setattr(old_folder, "APART_SECONDS", 0.2)
    monkeypatch.setattr(old_folder, "MOST_SECONDS", 2.0)
    monkeypatch.setattr(units, "PAUSES_SECONDS", (0.5, 0.5, 1.0, 2.0, 4.0))
