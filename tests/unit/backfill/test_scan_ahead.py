"""A scan lists, reads and compares at the same time, in the order of the units, and runs only so far ahead."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

import pytest

from sparkcrypt.errors import PlanError, SparkcryptError, StorageError
from sparkcrypt.files.footers import Found
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.table import scan
from sparkcrypt.runs.table.scan import LISTED_AHEAD, LISTERS, list_batches, read_units
from sparkcrypt.spark.files.listing import SourceFile

WAIT_SECONDS = 30.0
FILES = cast("Any", None)


def several(count: int) -> list[Unit]:
    """Return units that are not listed."""
    return [Unit(f"p={number}", f"/t/p={number}", None, f"p={number}", {}) for number in range(count)]


def listed(unit: Unit) -> Unit:
    """Return a unit with one file."""
    return unit.relocate(unit.location, (Folder("", (SourceFile(f"{unit.location}/f", 1, 1),)),))


class Reader:
    """A reader that finds an error for each file, and notes which files it was asked for."""

    def __init__(self) -> None:
        self.read_files: list[str] = []

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return an error for each."""
        self.read_files += [source.path for source in sources]
        return {source.path: SparkcryptError(source.path) for source in sources}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two units of one file."""
    monkeypatch.setattr(scan, "FILES_AT_ONCE", 2)
    monkeypatch.setattr(scan, "list_unit", lambda _, unit: listed(unit))


def names(read: Iterator[tuple[Unit, Mapping[str, Found]]]) -> list[str]:
    """Return the names of units."""
    return [unit.name for unit, _ in read]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 41])
def test_units_come_in_their_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """However long each listing takes; and each with its own files."""

    def slow(_: object, unit: Unit) -> Unit:
        time.sleep(random.random() / 500)
        return listed(unit)

    monkeypatch.setattr(scan, "list_unit", slow)
    units, reader = several(count), Reader()
    read = list(read_units(units, FILES, reader))
    assert [unit.name for unit, _ in read] == [unit.name for unit in units]
    assert all(list(found) == [file.path for file in unit.files] for unit, found in read)
    assert reader.read_files == [f"{unit.location}/f" for unit in units]


def test_next_batch_is_listed_while_one_is_read_and_read_while_one_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the three waits here until the one that should run beside it has begun."""
    began = {name: threading.Event() for name in ("listing 2", "reading 1")}

    def note_listing(_: object, unit: Unit) -> Unit:
        if unit.name == "p=2":
            began["listing 2"].set()
        return listed(unit)

    class Waiting(Reader):
        def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
            if sources[0].path == "/t/p=0/f":
                assert began["listing 2"].wait(WAIT_SECONDS)
            else:
                began["reading 1"].set()
            return super().read(sources)

    monkeypatch.setattr(scan, "list_unit", note_listing)
    for unit, _ in read_units(several(4), FILES, Waiting()):
        if unit.name == "p=0":
            assert began["reading 1"].wait(WAIT_SECONDS)


def test_scan_runs_only_so_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first unit is compared, one batch is read and one listed, and a few units wait for the next."""
    count = [0]

    def note_listing(_: object, unit: Unit) -> Unit:
        count[0] += 1
        return listed(unit)

    monkeypatch.setattr(scan, "list_unit", note_listing)
    reader = Reader()
    with closing(read_units(several(200), FILES, reader)) as reading:  # type: ignore[type-var]
        next(reading)
        time.sleep(0.2)
        assert len(reader.read_files) == 4
        assert count[0] <= 3 * 2 + LISTED_AHEAD + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("listing", "ahead"))]
    assert len(reader.read_files) == 4


def test_units_are_listed_by_a_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as can wait for the storage at once, and no more."""
    at_once, most, lock = [0], [0], threading.Lock()

    def note_listing(_: object, unit: Unit) -> Unit:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)
        with lock:
            at_once[0] -= 1
        return listed(unit)

    monkeypatch.setattr(scan, "list_unit", note_listing)
    assert sum(len(batch) for batch in list_batches(several(40), FILES)) == 40
    assert most[0] == LISTERS


def test_error_comes_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is listed before a unit that fails is read first; an error of the reader comes likewise."""

    def fail(_: object, unit: Unit) -> Unit:
        if unit.name in ("p=5", "p=7"):
            raise PlanError(unit.name)
        return listed(unit)

    class Failing(Reader):
        def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
            if sources[0].path == "/t/p=2/f":
                raise StorageError("reader")
            return super().read(sources)

    reading, seen = read_units(several(9), FILES, Failing()), list[str]()
    with pytest.raises(StorageError, match="reader"):
        seen.extend(unit.name for unit, _ in reading)
    monkeypatch.setattr(scan, "list_unit", fail)
    found = read_units(several(9), FILES, Reader())
    assert [next(found)[0].name for _ in range(4)] == ["p=0", "p=1", "p=2", "p=3"]
    with pytest.raises(PlanError, match="p=5"):
        next(found)


def test_unit_that_cannot_be_listed_is_noted_or_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the caller wants it; the others are read."""

    def fail(_: object, unit: Unit) -> Unit:
        if unit.name == "p=3":
            raise StorageError(unit.name)
        return listed(unit)

    monkeypatch.setattr(scan, "list_unit", fail)
    unlisted: dict[str, StorageError] = {}
    assert names(read_units(several(6), FILES, Reader(), unlisted=unlisted)) == [f"p={number}" for number in range(6)]
    assert list(unlisted) == ["p=3"]
    with pytest.raises(StorageError, match="p=3"):
        names(read_units(several(6), FILES, Reader()))
