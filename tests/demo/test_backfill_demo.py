"""The demo of the backfill, whole: readers loop, a writer appends, and the driver is killed three times at random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.demo.running import run_demo
from tests.services.installed import ROOT

pytestmark = [pytest.mark.services, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2500)]


def test_history_follows_a_new_tag_though_the_driver_is_killed_three_times(
    java: dict[str, str], jar: Path, vault: Any
) -> None:
    """On a real metastore, two workers and Vault: no drift is left, and nothing is lost, doubled or misread.

    The page to look at is that of the pass that rewrote files, not of the one after it.
    """
    printed = run_demo("run_backfill_demo.py", java, seconds=2400)
    assert printed.count("was killed") == 3
    page = ROOT / "demo" / "work-backfill" / "report.html"
    assert str(page) in "".join(printed.split()), "the page to look at is not named"
    rewritten = json.loads(page.with_suffix(".json").read_text())["totals"]["files_rewritten"]
    assert rewritten > 0
    assert f"{rewritten:,} files (" in page.read_text()
