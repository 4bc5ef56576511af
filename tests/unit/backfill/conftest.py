"""A state directory, a clock that is set by hand, and real processes that start at the same moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.state.store import LocalStateStore
from tests.services.installed import ROOT

TABLE = "6f1c0d6e-table"
RUN = "20261121T101112Z-3f9a2c"


@dataclass
class Clock:
    """Seconds since the epoch, as a test sets them."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """An empty state directory that is not there yet."""
    return LocalStateStore(tmp_path / "state")


def run_record(run_id: str = RUN, token: int = 1) -> RunRecord:
    """What a run is started with."""
    return RunRecord(TABLE, "sales.customers", run_id, "digest-1", {"columns": ["ssn"]}, {"engine": "spark"}, token)


def swap_unit(journal: Journal, unit: str, **last: Any) -> None:
    """Journal the steps of a unit from listed to swapped; the last record gets the further fields."""
    for kind in ("unit_listed", "unit_staged", "unit_verified", "unit_swapping", "unit_swapped"):
        journal.append(kind, unit=unit, staged=f"/staged/{unit}", **(last if kind == "unit_swapped" else {}))


Together = Callable[..., list[str]]


@pytest.fixture
def together(tmp_path: Path) -> Together:
    """Runs a script in several interpreters that start at the same moment; returns what each printed."""

    def run(script: str, count: int = 4) -> list[str]:
        command = [sys.executable, "-c", script, str(tmp_path)]
        processes = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            outputs = [process.communicate(timeout=60)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        assert [process.returncode for process in processes] == [0] * count
        return outputs

    return run
