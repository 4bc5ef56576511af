"""The demo of an estate at a glance, with a table of each kind."""

from __future__ import annotations

import pytest

from tests.demo.running import run_demo

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_tables_of_every_state_are_seen_at_a_glance(java: dict[str, str], jar: object) -> None:
    """What is open, untagged, damaged and drifting is in the status, its page and its metrics."""
    printed = run_demo("run_estate_demo.py", java, "6", seconds=240)
    assert "open problem: crm.orders" in printed
    assert "1 untagged" in printed
    assert "samples in work-estate/sparkcrypt.prom" in printed
