"""Fixtures of these tests."""

from __future__ import annotations

from tests.spark.fixtures import lake, private_jar

__all__ = ["lake", "private_jar"]
