"""How long a plan would take, by what earlier runs of the table wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.backfill.journal.journal import Journal, RunRecord
from sparkcrypt.backfill.journal.unit_steps import UnitState
from sparkcrypt.backfill.run.survey import bytes_a_second, rate
from sparkcrypt.backfill.state.store import LocalStateStore


def swapped(total_bytes: int, seconds: float | None) -> UnitState:
    """Return a unit that took so long."""
    return UnitState("unit_swapped", {"outcome": {"bytes_before": total_bytes, "seconds": seconds}})


def test_rate_is_of_all_units_together() -> None:
    """Long units weigh more than short ones; what does not tell its seconds does not count."""
    assert rate([swapped(100, 1.0), swapped(900, 4.0), swapped(10**9, None), swapped(10**9, 0.0)]) == 200
    assert rate([swapped(100, None), UnitState("unit_failed", {"error": "no"})]) is None
    assert rate([]) is None


def run(store: LocalStateStore, number: int, **outcome: Any) -> None:
    """Write the journal of a run of one unit."""
    record = RunRecord("t", "db.t", f"2026112{number}T000000000Z-abcdef", "digest", {}, {}, number)
    journal = Journal.start(store, record)
    journal.append("unit_listed", unit="p=0")
    journal.append("unit_swapped", unit="p=0", outcome=outcome)
    journal.append("run_finished", outcome="done")


def test_the_newest_three_runs_count(tmp_path: Path) -> None:
    """What a machine did long ago says nothing of this one."""
    store = LocalStateStore(tmp_path)
    assert bytes_a_second(store, "t") is None
    run(store, 1, bytes_before=1, seconds=1000.0)
    assert bytes_a_second(store, "t") == pytest.approx(0.001)
    for number in (2, 3, 4):
        run(store, number, bytes_before=300, seconds=2.0)
    assert bytes_a_second(store, "t") == 150
