"""In which order units are worked on, how long they may take, and how far they are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import RunConflictError, SourceChangedError, VerificationError
from sparkcrypt.ledger.journal.journal import RunRecord
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Unit, UnitOutcome
from sparkcrypt.runs.passes.result import bytes_a_second, rate
from sparkcrypt.runs.rewrite import schedule
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.schedule import Budget, Process, Result, work_through
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.progress import UnitProgress
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from tests.journals import start_run
from tests.unit.backfill.heard_progress import Heard, summed


def survey(name: str, total_bytes: int = 10) -> UnitSurvey:
    """Return a unit of so many bytes."""
    return UnitSurvey(Unit(name, f"/t/{name}", None, "", {}), Amount(1, total_bytes), ())


def done(unit: UnitSurvey) -> UnitOutcome:
    """Return that a unit was swapped."""
    return UnitOutcome(unit.name, 1, 1, unit.total_bytes, 1, "/old", "/new", verified=True)


def names(units: Sequence[UnitSurvey | UnitOutcome]) -> list[str]:
    """Return the units' names."""
    return [unit.name for unit in units]


def failing(errors: dict[str, list[Exception]], began: list[str]) -> Process:
    """Return what processes batches: a unit has its next error, as long as there is one."""

    def process(batch: Sequence[UnitSurvey]) -> list[Result]:
        began.extend(names(batch))
        return [errors[unit.name].pop(0) if errors.get(unit.name) else done(unit) for unit in batch]

    return process


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each unit a batch of its own."""
    monkeypatch.setattr(schedule, "MOST_UNITS", 1)


def same(units: list[UnitSurvey]) -> list[UnitSurvey]:
    """Say that units are where they were."""
    return units


def test_units_are_begun_in_order_and_outcomes_keep_it() -> None:
    """One at a time, each is begun when the one before has ended."""
    began: list[str] = []
    found = work_through([survey("a"), survey("b"), survey("c")], failing({}, began), same, RunOptions(parallelism=1))
    assert began == names(found.outcomes) == ["a", "b", "c"]
    assert found.outcome == "done"


@pytest.mark.usefixtures("alone")
def test_so_many_batches_are_worked_on_at_the_same_time() -> None:
    """Two batches that wait for each other both end."""
    both = threading.Barrier(2, timeout=10)

    def process(batch: Sequence[UnitSurvey]) -> list[Result]:
        both.wait()
        return [done(unit) for unit in batch]

    found = work_through([survey(name) for name in "abcd"], process, same, RunOptions(parallelism=2))
    assert names(found.outcomes) == ["a", "b", "c", "d"]


def test_units_are_begun_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch ends at so many units, files or bytes; one that is larger by itself is a batch of its own."""
    batches: list[list[str]] = []

    def process(batch: Sequence[UnitSurvey]) -> list[Result]:
        batches.append(names(batch))
        return [done(unit) for unit in batch]

    monkeypatch.setattr(schedule, "MOST_UNITS", 3)
    monkeypatch.setattr(schedule, "MOST_BYTES", 100)
    monkeypatch.setattr(schedule, "MOST_FILES", 4)
    units = [survey(name) for name in "abcd"] + [survey("e", 95), survey("f", 300), survey("g", 1)]
    many = UnitSurvey(Unit("h", "/t/h", None, "", {}), Amount(4, 1), ())
    work_through([*units, many], process, same, RunOptions(parallelism=1))
    assert batches == [["a", "b", "c"], ["d"], ["e"], ["f"], ["g"], ["h"]]


def test_an_error_ends_the_run_after_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun with it is finished, and nothing else is begun."""
    monkeypatch.setattr(schedule, "MOST_UNITS", 2)
    began: list[str] = []
    with pytest.raises(VerificationError):
        work_through(
            [*map(survey, "abc")], failing({"a": [VerificationError("no")]}, began), same, RunOptions(parallelism=1)
        )
    assert began == ["a", "b"]


@pytest.mark.usefixtures("alone")
def test_an_error_ends_the_run_and_no_further_unit_is_begun() -> None:
    """Without keep_going; and with it where the error is not one unit's."""
    for error, keep_going in ((VerificationError("no"), False), (RunConflictError("lost"), True)):
        began: list[str] = []
        with pytest.raises(type(error)):
            work_through(
                [survey("a"), survey("b"), survey("c")],
                failing({"b": [error]}, began),
                same,
                RunOptions(keep_going=keep_going, parallelism=1),
            )
        assert began == ["a", "b"]


@pytest.mark.usefixtures("alone")
def test_what_ends_the_run_leaves_the_budget_to_other_tables() -> None:
    """A batch that fails as a whole gives nothing back, since some of it may be done, and none after it takes any."""

    def process(batch: Sequence[UnitSurvey]) -> list[Result]:
        raise VerificationError("the state cannot be written")

    for parallelism, left in ((1, 30), (2, 20)):
        budget, both = Budget(max_bytes=40), threading.Barrier(parallelism, timeout=10)
        options = RunOptions(keep_going=True, parallelism=parallelism)

        def fail(batch: Sequence[UnitSurvey], both: threading.Barrier = both) -> list[Result]:
            both.wait()
            return process(batch)

        with pytest.raises(VerificationError):
            work_through([*map(survey, "abcd")], fail, same, options, budget=budget)
        assert budget.allows(left) and not budget.allows(1)


def test_a_unit_that_fails_gives_its_bytes_back() -> None:
    """It is told, the next one is begun, and what the budget is not enough for is left."""
    units, began = [survey("a"), survey("b"), survey("c"), survey("d")], list[str]()
    found = work_through(
        units,
        failing({"b": [VerificationError("no")]}, began),
        same,
        RunOptions(keep_going=True),
        budget=Budget(max_bytes=20),
    )
    assert (began, names(found.outcomes), names(found.left)) == (["a", "b", "c"], ["a", "c"], ["d"])
    assert [(unit.name, unit.error, unit.message) for unit in found.failed] == [("b", "VerificationError", "no")]
    assert found.outcome == "incomplete"


def test_busy_units_are_tried_again_where_they_are_then() -> None:
    """Units that were dropped meanwhile need nothing; those that stay busy are failures in the end."""
    tries = {"a": 1, "b": 9, "c": 9}
    busy: dict[str, list[Exception]] = {
        name: [SourceChangedError(f"{name} {number}") for number in range(count)] for name, count in tries.items()
    }
    began: list[str] = []
    found = work_through(
        [survey("a"), survey("b"), survey("c")],
        failing(busy, began),
        lambda units: [unit for unit in units if unit.name != "c"],
        RunOptions(keep_going=True),
        pauses=(0.0, 0.0),
    )
    assert began == ["a", "b", "c", "a", "b", "b"]
    assert (names(found.outcomes), [unit.message for unit in found.failed]) == (["a"], ["b 2"])


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
    journal = start_run(store, record)
    journal.append("unit_listed", unit="p=0")
    journal.append("unit_swapped", unit="p=0", outcome=outcome)
    journal.append("run_finished", outcome="done")


def test_the_newest_three_runs_count(tmp_path: Path) -> None:
    """What a machine did long ago says nothing of this one."""
    store = LocalStateStore(tmp_path)
    assert bytes_a_second(TableLog.open(store, "t", None)) is None
    run(store, 1, swapped(1, 1000.0).to_dict())
    assert bytes_a_second(TableLog.open(store, "t", None)) == pytest.approx(0.001)
    for number in (2, 3, 4):
        run(store, number, swapped(300, 2.0).to_dict())
    assert bytes_a_second(TableLog.open(store, "t", None)) == 150


@pytest.mark.parametrize("forged", [{}, 3, {**swapped(1, 1.0).to_dict(), "seconds": "soon"}])
def test_record_that_says_nothing_costs_only_its_run(tmp_path: Path, forged: Any) -> None:
    """Journals are shown without a key here, so anybody may have written them: a dry run does not end by one."""
    store = LocalStateStore(tmp_path)
    run(store, 1, swapped(300, 2.0).to_dict())
    run(store, 2, forged)
    assert bytes_a_second(TableLog.open(store, "t", None)) == 150


def test_rewritten_files_are_told_and_a_unit_that_is_not_done_is_not_told_as_done() -> None:
    """Its rewrite is nine tenths of it; the end is told once, whatever was told before."""
    heard = Heard()
    progress = UnitProgress(heard, 10, 1000)
    for files, told in ((0, (0, 0, 0)), (5, (4, 450, 0)), (5, (4, 450, 0)), (10, (9, 900, 0)), (12, (9, 900, 0))):
        progress.tell_rewritten(files)
        assert summed(heard) == told
    assert len(heard.told) == 2
    progress.tell_done()
    assert summed(heard) == (10, 1000, 1)


def test_unit_that_failed_is_taken_back() -> None:
    """It will be done another time."""
    heard = Heard()
    progress = UnitProgress(heard, 10, 1000)
    progress.tell_rewritten(7)
    progress.tell_unchanged()
    assert summed(heard) == (0, 0, 0)


def test_unit_without_files_is_told_as_done() -> None:
    """No division by zero, and no file to tell."""
    heard = Heard()
    progress = UnitProgress(heard, 0, 0)
    progress.tell_rewritten(0)
    progress.tell_done()
    assert heard.told == [(0, 0, 1)]
