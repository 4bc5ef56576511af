"""Fixtures of these tests."""

from __future__ import annotations

from tests.unit.cli.conftest import keys, policy

__all__ = ["keys", "policy"]
