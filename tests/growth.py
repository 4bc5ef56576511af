"""Counts of what work costs, and the check that they grow as the work's input does, not as its square."""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import get_ident
from types import FrameType
from typing import Any, TypeAlias

import pytest

from sparkcrypt.ledger.audit.trust import _is_normal_folder
from sparkcrypt.paths import _comparable_folder

MOST_GROWTH = 2.4
"""The most by which the step from 2n to 4n may exceed that from n to 2n: 2 if the cost is linear, 4 if it is square."""
LEAST_PART = 10
"""How many times as much as what does not grow the step from n to 2n must be, so that a small square shows in it."""
Work: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Metered:
    """A function whose calls count by what they move, list or visit, besides their lines.

    Attributes:
        owner: the class or module that has it.
        name: its name there.
        kind: what is counted.
        amount: returns how much a call counts, by its arguments and what it returned.
    """

    owner: Any
    name: str
    kind: str
    amount: Callable[[tuple[Any, ...], Any], int]


def count(work: Work, metered: Collection[Metered] = ()) -> Counter[str]:
    """Return how many lines of Python a piece of work runs, how many functions it calls, and what metered ones count.

    Threads that the work starts count too.  A loop counts for each of its rounds, in a comprehension too, whether or
    not it calls anything.  What C code does within one call counts as one call, so what copies or searches a whole list
    there must be metered.
    """
    found: Counter[str] = Counter()
    threads: defaultdict[int, Counter[str]] = defaultdict(Counter)

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:
        threads[get_ident()]["lines"] += event == "line"
        return trace

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        threads[get_ident()]["calls"] += event in ("call", "c_call")

    before = sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()
    with pytest.MonkeyPatch.context() as patched:
        for meter in metered:
            patched.setattr(meter.owner, meter.name, _counting(meter, found))
        threading.settrace(trace)
        threading.setprofile(profile)
        sys.settrace(trace)
        sys.setprofile(profile)
        try:
            work()
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])
            threading.settrace(before[2])
            threading.setprofile(before[3])
    return sum(threads.values(), found)


def _counting(meter: Metered, found: Counter[str]) -> Any:
    original = meter.owner.__dict__[meter.name]
    if isinstance(original, property):
        return property(lambda owner: _counted(meter, found, original.__get__(owner), (owner,)))

    def metered(*args: Any, **named: Any) -> Any:
        return _counted(meter, found, original(*args, **named), args)

    return metered


def _counted(meter: Metered, found: Counter[str], returned: Any, args: tuple[Any, ...]) -> Any:
    found[meter.kind] += meter.amount(args, returned)
    return returned


def _count_afresh(work: Work, metered: Collection[Metered]) -> Counter[str]:
    """Count without the folders that the work for another size has left in caches."""
    for remembered in (_comparable_folder, _is_normal_folder):
        remembered.cache_clear()
    return count(work, metered)


def assert_linear(
    works: Callable[[int], Work],
    size: int,
    kinds: Collection[str] = ("lines", "calls"),
    metered: Collection[Metered] = (),
    most: float = MOST_GROWTH,
) -> None:
    """Check that counts of some work for ``size``, twice and four times as much grow linearly.

    Args:
        works: returns the work for a size, which has not begun.
        size: so large that what does not grow is a tenth of the least step.
        kinds: what is checked, of lines, calls and the kinds of metered functions.
        metered: the functions that count in kinds of their own.
        most: the most growth; less where so much is done for each that a square of a line shows late beside it.
    """
    once, twice, four = (_count_afresh(works(size * times), metered) for times in (1, 2, 4))
    for kind in kinds:
        step = twice[kind] - once[kind]
        assert step >= max(1, LEAST_PART * (once[kind] - step)), (
            f"{kind}: {once[kind]}, {twice[kind]}; a larger size is needed"
        )
        growth = (four[kind] - twice[kind]) / step
        assert growth <= most, f"{kind}: {once[kind]}, {twice[kind]}, {four[kind]}, so they grow by {growth:.2f}"
