"""The demo of retention, whole: a key a month, a rotation, and what each route gives of a month that is dark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.services.installed import ROOT
from tests.services.quick_java import EXECUTORS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_oldest_month_is_dark_by_every_route(java: dict[str, str], jar: object) -> None:
    """Its values are refused or null, with when and why; other columns and months are as before."""
    done = subprocess.run(
        [sys.executable, ROOT / "demo" / "run_retention_demo.py"],
        env={**java, **EXECUTORS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert "The demo passed" in done.stdout
    assert done.stdout.count("│ 3 nulls") == 3
    assert done.stdout.count("cannot be read by anybody any more") == 2
    assert "is never made again" in done.stdout
