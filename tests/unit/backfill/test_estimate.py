"""How long a plan would take, by what earlier runs of the table wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import UnitOutcome
from sparkcrypt.runs.passes.result import bytes_a_second, rate


def swapped(total_bytes: int, seconds: float | None) -> UnitOutcome:
    """Return the outcome of a unit that took so long."""
    return UnitOutcome("p=0", 1, 1, total_bytes, total_bytes, "/t/p=0", "/new/p=0", True, seconds=seconds)


def test_rate_is_of_all_units_together() -> None:
    """Long units weigh more than short ones; what does not tell its seconds does not count."""
    assert rate([swapped(100, 1.0), swapped(900, 4.0), swapped(10**9, None), swapped(10**9, 0.0)]) == 200
    assert rate([swapped(100, None)]) is None
    assert rate([]) is None


def run(store: LocalStateStore, number: int, outcome: dict[str, Any]) -> None:
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
    run(store, 1, swapped(1, 1000.0).to_dict())
    assert bytes_a_second(store, "t") == pytest.approx(0.001)
    for number in (2, 3, 4):
        run(store, number, swapped(300, 2.0).to_dict())
    assert bytes_a_second(store, "t") == 150


@pytest.mark.parametrize("forged", [{}, 3, {**swapped(1, 1.0).to_dict(), "seconds": "soon"}])
def test_record_that_says_nothing_costs_only_its_run(tmp_path: Path, forged: Any) -> None:
    """Journals are shown without a key here, so anybody may have written them: a dry run does not end by one."""
    store = LocalStateStore(tmp_path)
    run(store, 1, swapped(300, 2.0).to_dict())
    run(store, 2, forged)
    assert bytes_a_second(store, "t") == 150
