"""The demo of the backfill, whole: readers loop, a writer appends, and the driver is killed three times at random."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.installed import ROOT
from tests.services.quick_java import EXECUTORS

pytestmark = [pytest.mark.services, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2500)]


def test_history_follows_a_new_tag_though_the_driver_is_killed_three_times(
    java: dict[str, str], jar: Path, vault: Any
) -> None:
    """On a real metastore, two workers and Vault: no drift is left, and nothing is lost, doubled or misread.

    The page to look at is that of the pass that rewrote files, not of the one after it.
    """
    done = subprocess.run(
        [sys.executable, ROOT / "demo" / "run_backfill_demo.py"],
        env={**java, **EXECUTORS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.stdout.count("was killed") == 3
    assert "The demo passed" in done.stdout
    page = ROOT / "demo" / "work-backfill" / "report.html"
    assert str(page) in "".join(done.stdout.split()), "the page to look at is not named"
    rewritten = json.loads(page.with_suffix(".json").read_text())["totals"]["files_rewritten"]
    assert rewritten > 0
    assert f"{rewritten:,} files (" in page.read_text()
