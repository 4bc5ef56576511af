"""A store for data skipping costs as much as it has objects: made, opened, compared, refreshed, verified, asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkcrypt.skipping.format.description import Index, object_name
from sparkcrypt.skipping.format.store import Bounds, IndexEntries, Store
from sparkcrypt.skipping.query.skipper import Compare, Listed, Or, Skipper
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts
from tests.growth import Work, assert_linear
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.stores import must_open
from tests.unit.skipping.tables import Table


def _create(table: Table, number: int) -> Work:
    return lambda: table.create("id", kinds={"ssn": ("valuelist", "bloom")})


def _open(table: Table, number: int) -> Work:
    table.create("id", kinds={"ssn": ("valuelist",)})

    def open_it() -> None:
        assert len(table.opened().store.objects) == number
        assert table.compare().is_fresh

    return open_it


def _refresh(table: Table, number: int) -> Work:
    """Refresh a store of which half of the files were written again."""
    table.create("id")
    for place in range(0, number, 2):
        table.write(f"{place:05}.parquet", place, place + 1)

    def refresh() -> None:
        assert not table.compare().is_fresh
        assert table.refresh().read == number // 2

    return refresh


def _ask(number: int) -> Work:
    """Ask which files a query need not open, and the store for the rest of what it knows of them."""
    listed = [Listed(f"/t/{place:05}", 5, 10) for place in range(number)]
    names = tuple(object_name(file.path, 5) for file in listed)
    bounds = tuple(Bounds(10 * place, 10 * place + 5) for place in range(number))
    index = IndexEntries(Index("", "minmax", ("id",), "long"), bounds)
    store, facts = Store(4, "/t", None, names, (), (index,)), {name: ObjectFacts(10) for name in names}
    values = [10 * (number // 2), *range(-20, 0)]
    predicate = Or(tuple(Compare("id", "=", value) for value in values))

    def ask() -> None:
        skipper = Skipper(store, facts)
        assert must_open(skipper, listed, predicate).count(True) == 1
        assert len(list(skipper.name_rows(predicate))) == number

    return ask


MOST_GROWTH = 2.04
"""Reading a file takes thousands of lines, so a square of a line shows late beside them."""
WORKS: dict[str, tuple[Callable[[Table, int], Work], int]] = {
    "made": (_create, 30),
    "opened and compared": (_open, 150),
    "refreshed": (_refresh, 80),
}
"""What is done -> what makes a store of so many files and returns it, and how many."""


@pytest.mark.parametrize("work", WORKS)
def test_cost_is_linear(tmp_path: Path, work: str) -> None:
    """Twice as many objects cost twice as much."""
    make, size = WORKS[work]

    def prepare(number: int) -> Work:
        root = tmp_path / f"{number}"
        root.mkdir()
        keys = Keys(root / "keys")
        table = Table(root, keys, keys)
        for place in range(number):
            table.write(f"{place:05}.parquet", 10 * place, 10 * place + 5)
        return make(table, number)

    prepare(2)()
    assert_linear(prepare, size, most=MOST_GROWTH)


def test_cost_of_a_query_is_linear() -> None:
    """Twice as many files that are listed, and objects that are known, cost twice as much."""
    _ask(2)()
    assert_linear(_ask, 200, most=2.1)
