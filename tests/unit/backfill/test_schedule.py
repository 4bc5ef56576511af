"""Units one after the other or several at a time: what is begun, what is tried again, and what an error ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from sparkcrypt.errors import RunConflictError, SourceChangedError, VerificationError
from sparkcrypt.ledger.unit import Unit, UnitOutcome
from sparkcrypt.runs.rewrite.schedule import Budget, work_through
from sparkcrypt.runs.table.unit_survey import Amount, UnitSurvey


def survey(name: str, total_bytes: int = 10) -> UnitSurvey:
    """Return a unit of so many bytes."""
    return UnitSurvey(Unit(name, f"/t/{name}", None, "", {}), Amount(1, total_bytes), ())


def done(unit: UnitSurvey) -> UnitOutcome:
    """Return that a unit was swapped."""
    return UnitOutcome(unit.name, 1, 1, unit.total_bytes, 1, "/old", "/new", verified=True)


def failing(errors: dict[str, list[Exception]], began: list[str]) -> Callable[[UnitSurvey], UnitOutcome]:
    """Return what processes units: it raises the next error of a unit, as long as there is one."""

    def process(unit: UnitSurvey) -> UnitOutcome:
        began.append(unit.name)
        if errors.get(unit.name):
            raise errors[unit.name].pop(0)
        return done(unit)

    return process


def same(units: list[UnitSurvey]) -> list[UnitSurvey]:
    """Say that units are where they were."""
    return units


def names(units: Sequence[UnitSurvey | UnitOutcome]) -> list[str]:
    """Return the units' names."""
    return [unit.name for unit in units]


def test_units_are_begun_in_order_and_outcomes_keep_it() -> None:
    """One at a time, each is begun when the one before has ended."""
    began: list[str] = []
    found = work_through([survey("a"), survey("b"), survey("c")], failing({}, began), same)
    assert began == names(found.outcomes) == ["a", "b", "c"]
    assert found.outcome == "done"


def test_so_many_units_are_worked_on_at_the_same_time() -> None:
    """Two units that wait for each other both end."""
    both = threading.Barrier(2, timeout=10)

    def process(unit: UnitSurvey) -> UnitOutcome:
        both.wait()
        return done(unit)

    found = work_through([survey(name) for name in "abcd"], process, same, parallelism=2)
    assert names(found.outcomes) == ["a", "b", "c", "d"]


def test_an_error_ends_the_run_and_no_further_unit_is_begun() -> None:
    """Without keep_going; and with it where the error is not one unit's."""
    for error, keep_going in ((VerificationError("no"), False), (RunConflictError("lost"), True)):
        began: list[str] = []
        with pytest.raises(type(error)):
            work_through(
                [survey("a"), survey("b"), survey("c")],
                failing({"b": [error]}, began),
                same,
                keep_going=keep_going,
            )
        assert began == ["a", "b"]


def test_a_unit_that_fails_gives_its_bytes_back() -> None:
    """It is told, the next one is begun, and what the budget is not enough for is left."""
    units, began = [survey("a"), survey("b"), survey("c"), survey("d")], list[str]()
    found = work_through(
        units,
        failing({"b": [VerificationError("no")]}, began),
        same,
        budget=Budget(max_bytes=20),
        keep_going=True,
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
        pauses=(0.0, 0.0),
        keep_going=True,
    )
    assert began == ["a", "b", "c", "a", "b", "b"]
    assert (names(found.outcomes), [unit.message for unit in found.failed]) == (["a"], ["b 2"])
