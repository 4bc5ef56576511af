"""The demo of retention, whole: a key a month, a rotation, and what each route gives of a month that is dark."""

from __future__ import annotations

import pytest

from tests.demo.running import run_demo

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_oldest_month_is_dark_by_every_route(java: dict[str, str], jar: object) -> None:
    """Its values are refused or null, with when and why; other columns and months are as before."""
    printed = run_demo("run_retention_demo.py", java, seconds=500)
    assert printed.count("│ 3 nulls") == 3
    assert printed.count("cannot be read by anybody any more") == 2
    assert "is never made again" in printed
