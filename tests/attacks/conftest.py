"""Fixtures of these tests."""

from __future__ import annotations

from tests.spark.fixtures import lake, private_jar
from tests.spark.killing import unit_a_batch
from tests.spark.restored_state import copies

__all__ = ["copies", "lake", "private_jar", "unit_a_batch"]
