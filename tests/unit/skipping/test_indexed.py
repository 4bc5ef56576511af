"""One index, whether its files are those of a folder or of a table: what can be done to it, and its last generation."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.skipping.indexes.build import Wanted, keys_of_store, plan_store, read_kinds
from sparkcrypt.skipping.indexes.files import read_rows
from sparkcrypt.skipping.indexes.indexed import Indexed, IndexStore, Source, folder_source
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.tables import UUID, Table

WANTED = Wanted(read_kinds(["id", "ssn:values"]))


@dataclass
class Record:
    """A record of the last generation."""

    last: int = 0

    def read(self) -> int:
        """Return it."""
        return self.last

    def keep(self, generation: int) -> None:
        """Note a generation."""
        self.last = max(self.last, generation)


@dataclass
class Case:
    """An index, its files, and the key that its column ``ssn`` is to have once it is refreshed."""

    table: Table
    indexed: Indexed
    key: str


@pytest.fixture(params=["folder", "table"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """Two files of a table in two partitions; by the catalog one of them is elsewhere, and a tag has changed."""
    keys = Keys(tmp_path / "keys")
    table = Table(tmp_path, keys, keys)
    for number in (1, 2):
        table.write(f"day={number}/a.parquet", number, uuid=UUID, key="pii")
    policy: Any = SimpleNamespace(footer_key="footer", footer_key_history=(), data_key_bits=128, tables=())
    store = IndexStore(policy, UUID, table.folder, Record(), keys.service, keys)
    if request.param == "folder":
        return Case(table, Indexed(folder_source(policy, table.data, read_rows), lambda _: store), "pii")
    shutil.move(tmp_path / "data" / "day=2", tmp_path / "elsewhere")
    folders = {"day=1": str(tmp_path / "data" / "day=1"), "day=2": str(tmp_path / "elsewhere")}
    data = replace(table.data, partitions=folders, depth=1)
    planned, plan = {"ssn": "other"}, partial(plan_store, data)
    source = Source("db.t", data, read_rows, lambda: UUID, plan, lambda *_: planned, lambda _: None)
    return Case(table, Indexed(source, lambda _: store), "other")


def test_an_index_is_made_kept_and_dropped(case: Case) -> None:
    """Each step is recorded, and reads what is new; a dropped index is gone, and its generations go on."""
    indexed = case.indexed
    made = indexed.create(WANTED)
    assert (made.generation, made.objects, made.read, made.unknown) == (1, 2, 2, {})
    case.table.write("day=1/b.parquet", 3, uuid=UUID, key="pii")
    fresh = indexed.compare_listing()
    assert fresh is not None and (fresh.indexed, fresh.new) == (2, 1)
    assert (indexed.verify().same, len(indexed.verify().new)) == (2, 1)
    refreshed = indexed.refresh()
    assert (refreshed.generation, refreshed.read, refreshed.objects, refreshed.written) == (2, 1, 3, True)
    assert keys_of_store(indexed.store.open(2).store, "footer") == {"ssn": case.key}
    assert (indexed.verify().is_fresh, indexed.refresh().written) == (True, False)
    assert len(indexed.drop()) == 2
    with pytest.raises((ConfigError, FormatError), match=r"has no index at|cannot be read"):
        indexed.refresh()
    assert indexed.compare_listing() is None
    assert indexed.create(WANTED).generation == 4


def test_an_index_that_is_brought_back_is_not_used(case: Case, tmp_path: Path) -> None:
    """The recorded generation tells of a later one, also after it was dropped."""
    case.indexed.create(WANTED)
    shutil.copytree(tmp_path / "store", tmp_path / "kept")
    case.indexed.create(WANTED)
    for last in (2, 4):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        shutil.copytree(tmp_path / "kept", tmp_path / "store")
        for act in (case.indexed.refresh, case.indexed.verify):
            with pytest.raises(VerificationError, match=f"is of generation 1, and {last} was written last"):
                act()
        case.indexed.create(WANTED)
        case.indexed.drop()


def test_an_index_in_a_folder_of_a_table_stays(case: Case) -> None:
    """Who uses the folder is asked of the source before anything is deleted."""
    case.indexed.create(WANTED)
    case.indexed.source = replace(case.indexed.source, find_user=lambda _: "table db.u is there")
    with pytest.raises(VerificationError, match=r"table db\.u is there, so its files stay"):
        case.indexed.drop()
    assert case.indexed.verify().is_fresh
