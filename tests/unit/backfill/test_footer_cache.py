"""The cache of footers: few objects for many units, the newest record counts, and what is damaged is read again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.runs.table import cache as cache_module
from sparkcrypt.runs.table.cache import MOST_RECORDS, FooterCache
from sparkcrypt.spark.files.listing import SourceFile
from tests.footers import keep_footers, unit_named
from tests.unit.backfill.scanned_files import plain_file

RECORDS, INDEX = "cache/footers/id/records/", "cache/footers/id/index/"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStateStore:
    """An empty state directory."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power cut concerns hundreds of records
    return LocalStateStore(tmp_path)


def unit(name: str, *, modified: int = 1) -> Unit:
    """Return a unit of one file."""
    return unit_named(name, [SourceFile(f"/t/{name}/f", 10, modified)])


def facts(*units: Unit, rows: int = 1) -> dict[str, dict[str, Found]]:
    """Return what the footers of the files of units say."""
    return {
        one.name: {
            file.path: FooterFacts(replace(plain_file(("c",), path=file.path), rows=rows), {}) for file in one.files
        }
        for one in units
    }


def keep(store: LocalStateStore, *units: Unit, rows: int = 1) -> None:
    """Keep them, as of units that were read together, by a pass of its own."""
    FooterCache(store, "id").keep(units, facts(*units, rows=rows), {one.name for one in units})


def rows_of(store: LocalStateStore, *units: Unit) -> dict[str, int]:
    """Return what a new pass knows of units: the rows of the file of each."""
    known = FooterCache(store, "id").find_known(units)
    return {name: cast("FooterFacts", found).summary.rows or 0 for name, of in known.items() for found in of.values()}


def test_units_that_are_read_together_are_one_object(store: LocalStateStore) -> None:
    """A night's new units are one; none is written where nothing is new."""
    units = [unit(f"p={place}") for place in range(200)]
    keep(store, *units[:180])
    keep(store, *units[180:])
    assert len(store.list("cache/")) == 2
    assert rows_of(store, *units) == {one.name: 1 for one in units}
    FooterCache(store, "id").keep(units, facts(*units), set())
    assert len(store.list("cache/")) == 2


def test_newest_record_of_a_unit_counts(store: LocalStateStore) -> None:
    """Also after an index, and for whoever asks for all."""
    many = [unit(f"p={place}") for place in range(3)]
    keep(store, *many)
    for night in range(2 * MOST_RECORDS):
        keep(store, many[0], rows=night)
    assert rows_of(store, *many) == {"p=0": 2 * MOST_RECORDS - 1, "p=1": 1, "p=2": 1}
    read = {name: found for name, _, found in FooterCache(store, "id").read_all()}
    assert read == {**facts(many[0], rows=2 * MOST_RECORDS - 1), **facts(*many[1:])}


def test_records_that_count_for_no_unit_are_deleted(store: LocalStateStore) -> None:
    """A unit that is rewritten each night does not fill the state directory."""
    other = unit("p=1")
    keep(store, other)
    for night in range(10 * MOST_RECORDS):
        keep(store, unit("p=0"), rows=night)
        assert len(store.list(RECORDS)) <= MOST_RECORDS + 2
    assert len(store.list(INDEX)) == 1
    assert rows_of(store, other, unit("p=0")) == {"p=0": 10 * MOST_RECORDS - 1, "p=1": 1}


def test_units_of_many_records_are_brought_together(store: LocalStateStore) -> None:
    """So that a pass over a table of which each unit came alone reads few objects."""
    units = [unit(f"p={place}") for place in range(MOST_RECORDS + 2)]
    for one in units[:-1]:
        keep(store, one)
    FooterCache(store, "id").keep(units, facts(*units), {units[-1].name})
    assert rows_of(store, *units) == {one.name: 1 for one in units}
    cache = FooterCache(store, "id")
    assert len({cache._open()[one.name] for one in units}) == 1


def test_file_that_changed_is_not_known(store: LocalStateStore) -> None:
    """Its time tells."""
    keep(store, unit("p=0"), unit("p=1"))
    assert rows_of(store, unit("p=0", modified=2), unit("p=1")) == {"p=1": 1}


def test_large_facts_are_records_of_their_own(store: LocalStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is ended before it is too large for the state directory."""
    monkeypatch.setattr(cache_module, "RECORD_BYTES", 1_000)
    units = [unit(f"p={place}") for place in range(10)]
    keep(store, *units)
    assert len(store.list(RECORDS)) > 2
    assert rows_of(store, *units) == {one.name: 1 for one in units}


def test_record_of_another_driver_is_taken(store: LocalStateStore) -> None:
    """A number that another driver has written first is read, and the next one is written."""
    first, second = FooterCache(store, "id"), FooterCache(store, "id")
    assert first.find_known([]) == second.find_known([]) == {}
    for cache, name in ((first, "p=0"), (second, "p=1")):
        keep_footers(cache, name, unit(name).files, facts(unit(name))[name])
    assert len(store.list(RECORDS)) == 2
    assert set(second.find_known([unit("p=0"), unit("p=1")])) == {"p=0", "p=1"}


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"version": 8, "units": 3}', b'{"version": 8, "last": "x"}'])
@pytest.mark.parametrize("kind", [RECORDS, INDEX])
def test_damage_is_read_around(store: LocalStateStore, kind: str, content: bytes) -> None:
    """What a record holds is read from its files again; without an index, all records are read."""
    for night in range(MOST_RECORDS + 1):
        keep(store, unit(f"p={night}"))
    name = store.list(kind)[0]
    store.delete(name)
    store.create(name, content)
    known = rows_of(store, *(unit(f"p={night}") for night in range(MOST_RECORDS + 1)))
    assert len(known) == MOST_RECORDS + (kind == INDEX)


def test_commands_that_change_nothing_keep_nothing(store: LocalStateStore) -> None:
    """A dry run leaves the state directory as it is."""
    FooterCache(store, "id", keeps=False).keep([unit("p=0")], facts(unit("p=0")), {"p=0"})
    assert store.list("") == ()


def test_what_is_no_record_is_left(store: LocalStateStore) -> None:
    """A copy that somebody made beside a record stops no pass."""
    keep(store, unit("p=0"))
    store.create(f"{RECORDS}00000001.json.copy", b"{}")
    assert rows_of(store, unit("p=0")) == {"p=0": 1}
