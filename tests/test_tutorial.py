"""The tutorial of the README, run as it stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.services.installed import ROOT
from tests.tutorial import run_tutorial

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_tutorial_runs_as_written(java: dict[str, str], jar: Path, tmp_path: Path) -> None:
    """Every command of the tutorial ends well, in its order, in a folder that holds nothing but what it makes."""
    run_tutorial(tmp_path, Path(sys.executable), {**java, "PYTHONPATH": str(ROOT)})
