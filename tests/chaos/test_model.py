from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.draw import FAULTS, draw
from tests.chaos.model import Model


def found(*ids: int, partition: int | None = 0) -> list[tuple[int, str, int | None]]:
    """Return rows as a table gives them."""
    return [(row_id, f"CANARY-{row_id}", partition) for row_id in ids]


def model() -> Model:
    """Return a model of three rows in one partition."""
    made = Model()
    made.added(0, [1, 2, 3], succeeded=True)
    return made


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (found(1, 2, 3), []),
        (found(1, 2), ["lost"]),
        (found(1, 2, 3, 3), ["doubled"]),
        (found(1, 2, 3, 4), ["came back"]),
        (found(1, 2, partition=0) + found(3, partition=1), ["lost", "came back"]),
        ([*found(1, 2), (3, "other", 0)], ["changed"]),
    ],
)
def test_each_row_must_be_there_once(rows: list[tuple[int, str, int | None]], kinds: list[str]) -> None:
    """Rows that are missing, twice there, of nobody, in another partition or with other values are told apart."""
    assert [finding.kind for finding in model().judge(rows, ())] == kinds


@pytest.mark.parametrize(
    ("write", "right", "wrong"),
    [
        (lambda made, ok: made.added(0, [4], succeeded=ok), [1, 2, 3, 4], [1, 2, 3]),
        (lambda made, ok: made.replaced(0, [4], succeeded=ok), [4], [1, 2, 3]),
        (lambda made, ok: made.replaced(0, [], succeeded=ok), [], [1]),
        (lambda made, ok: made.rewritten(0, [1], succeeded=ok), [2, 3], [1, 2, 3]),
        (lambda made, ok: made.rewritten(0, [], succeeded=ok), [1, 2, 3], [1, 1, 2, 2, 3, 3]),
        (lambda made, ok: made.all_replaced({0: [4]}, succeeded=ok), [4], [1, 2, 3]),
    ],
)
def test_a_write_that_succeeded_decides_and_one_that_failed_leaves_both(
    write: Callable[[Model, bool], None], right: list[int], wrong: list[int]
) -> None:
    """What a write promised must be there once it succeeded; where it failed, its outcome and none are both right."""
    done, failed = model(), model()
    write(done, True)
    write(failed, False)
    assert done.judge(found(*right), ()) == []
    assert done.judge(found(*wrong), ()) != []
    assert failed.judge(found(*right), ()) == failed.judge(found(*wrong), ()) == []


def test_erased_aside_is_in_question_once_all_files_in_use_are_rewritten() -> None:
    """An erasure in a folder that the table left must hold, unless the files in use were rewritten before a pass."""
    made = model()
    made.rewritten(0, [1], succeeded=True, aside=True)
    assert [finding.kind for finding in made.judge(found(1, 2, 3), ())] == ["came back"]
    made.rewritten(0, [], succeeded=True)
    assert made.judge(found(1, 2, 3), ()) == made.judge(found(2, 3), ()) == []
    made.replaced(0, [2, 3], succeeded=True)
    assert [finding.kind for finding in made.judge(found(1, 2, 3), ())] == ["came back"]


def test_reported_partitions_are_in_question_and_others_are_not() -> None:
    """What the tool itself reports of one partition excuses nothing in another."""
    made = model()
    made.added(1, [4], succeeded=True)
    assert made.judge([], {0, 1}) == []
    assert [(finding.kind, finding.partition) for finding in made.judge([], {0})] == [("lost", 1)]


def test_a_seed_gives_the_same_round_and_seeds_together_everything() -> None:
    """Rounds are repeated by their seeds, and a few hundred of those draw every fault."""
    plans = [draw(seed) for seed in range(300)]
    assert plans == [draw(seed) for seed in range(300)]
    assert {plan.fault for plan in plans} == set(FAULTS)
    assert draw(plans.index(next(plan for plan in plans if plan.fault == "state cut")), ["none"]).fault == "none"
