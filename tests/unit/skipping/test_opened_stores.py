"""Stores that are kept open, and which files they leave out."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError, VerificationError
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.skipping.indexes.build import Wanted, keys_of_store, plan_store, read_kinds
from sparkcrypt.skipping.indexes.files import read_rows
from sparkcrypt.skipping.indexes.indexed import Indexed, IndexStore, Source, folder_source
from sparkcrypt.skipping.query.skip_files import OpenedStore, OpenedStores, PartedStore, Reader
from sparkcrypt.skipping.query.skipper import Compare, Listed
from sparkcrypt.skipping.trusted.trust import Expected
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.stores import must_open
from tests.unit.skipping.tables import UUID, Table

TYPES = {"id": "long", "ssn": "string"}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """The keys of the policy."""
    return Keys(tmp_path / "keys")


@pytest.fixture
def table(tmp_path: Path, keys: Keys) -> Table:
    """Two encrypted files with a store."""
    made = Table(tmp_path, keys, keys)
    for number in range(2):
        made.write(f"{number}.parquet", number * 10, number * 10 + 5, uuid=UUID, key="pii")
    made.create("id", "ssn")
    return made


class Asked:
    """Counts the keys that a reader asks for; some may be denied."""

    def __init__(self, keys: Keys, denied: str = "") -> None:
        self.keys, self.denied, self.requests = keys, denied, 0

    def __call__(self, request: KeyRequest) -> bytes:
        """Return a data key."""
        self.requests += 1
        if self.denied and self.denied.encode() in (request.key_metadata or b""):
            raise KeyAccessDeniedError(f"key {self.denied} is denied")
        return self.keys(request)


def reader(asked: Asked, credential: str = "ann", **expected: Any) -> Reader:
    """Return a reader of the table."""
    wanted = {"table_uuid": UUID, "footer_keys": ("footer",), "column_keys": {"ssn": "pii"}, **expected}
    return Reader(credential, Expected(**wanted), TYPES, asked)


def skipped(opened: Any, table: Table, predicate: Compare) -> list[str]:
    """Return the names of the files that a store leaves out."""
    files = sorted((table.root / "data").iterdir())
    listed = [Listed(str(file), file.stat().st_mtime_ns // 1_000_000, file.stat().st_size) for file in files]
    kept = must_open(opened.skipper, listed, predicate)
    return [file.name for file, must in zip(files, kept, strict=True) if not must]


def test_store_is_opened_once_for_each_reader(table: Table, keys: Keys) -> None:
    """One credential asks for keys once; another asks for its own, and is not served what the first may see."""
    stores, ann, bob = OpenedStores(), Asked(keys), Asked(keys, denied="pii")
    first = stores.open(table.folder, reader(ann))
    asked = ann.requests
    assert stores.open(table.folder, reader(ann)) is first
    assert ann.requests == asked > 0
    other = stores.open(table.folder, reader(bob, "bob"))
    assert other is not None
    assert (dict(first.unused), list(other.unused)) == ({}, ["ssn minmax"])  # type: ignore[union-attr]
    assert skipped(first, table, Compare("ssn", "=", "000-secret")) == ["1.parquet"]
    assert skipped(other, table, Compare("ssn", "=", "000-secret")) == []
    assert skipped(other, table, Compare("id", "=", 0)) == ["1.parquet"]


def test_store_is_opened_again_when_it_is_old_or_was_written(table: Table, keys: Keys, monkeypatch: Any) -> None:
    """Neither its age nor its generation is older than what the reader takes."""
    stores, asked, clock = OpenedStores(lifetime_seconds=100), Asked(keys), [1000.0]
    monkeypatch.setattr("sparkcrypt.skipping.query.skip_files.time.monotonic", lambda: clock[0])
    first = stores.open(table.folder, reader(asked))
    clock[0] += 60
    assert stores.open(table.folder, reader(asked)) is first
    assert stores.open(table.folder, reader(asked), lifetime_seconds=50) is not first
    clock[0] += 101
    again = stores.open(table.folder, reader(asked))
    assert again is not first
    table.write("2.parquet", 50, uuid=UUID, key="pii")
    table.refresh(UUID)
    later = stores.open(table.folder, reader(asked))
    assert again is not None
    assert later is not None
    assert (again.generation, later.generation) == (1, 2)


@pytest.mark.parametrize("opened_before", [False, True])
def test_earlier_generation_is_not_used_again(table: Table, keys: Keys, opened_before: bool) -> None:
    """A store that is brought back, and that this process has seen a successor of, is refused, also if it is kept."""
    stores, asked = OpenedStores(), Asked(keys)
    if opened_before:
        assert stores.open(table.folder, reader(asked)) is not None
    old = {path: path.read_bytes() for path in (table.root / "store").iterdir()}
    table.write("2.parquet", 50, uuid=UUID, key="pii")
    table.refresh(UUID)
    assert stores.open(table.folder, reader(asked)) is not None
    for path in (table.root / "store").iterdir():
        path.unlink()
    for path, content in old.items():
        path.write_bytes(content)
    with pytest.raises(VerificationError, match="generation 1, and 2 was written last"):
        stores.open(table.folder, reader(asked))


def test_no_more_is_kept_than_fits(table: Table, keys: Keys) -> None:
    """Of a store that is larger than what may be kept its sidecar alone is opened, and forgotten if that is larger."""
    stores, asked = OpenedStores(most_bytes=100), Asked(keys)
    first = stores.open(table.folder, reader(asked))
    assert isinstance(first, PartedStore)
    assert asked.requests == 1  # of the sidecar
    assert stores.open(table.folder, reader(asked)) is not first
    assert repr(stores) == "OpenedStores(0 stores)"
    fitting = OpenedStores(most_bytes=first.bytes)
    first = fitting.open(table.folder, reader(asked))
    assert fitting.open(table.folder, reader(asked)) is first


def test_reader_who_expects_other_keys_has_his_own(table: Table, keys: Keys) -> None:
    """A policy that puts the column under another key does not use what was opened under the former."""
    stores, asked = OpenedStores(), Asked(keys)
    stores.open(table.folder, reader(asked))
    other = stores.open(table.folder, reader(asked, column_keys={"ssn": "other"}))
    assert isinstance(other, OpenedStore)
    assert other.unused["ssn minmax"].startswith("it is under another key")


def test_table_without_a_store_has_none(table: Table, keys: Keys) -> None:
    """A folder without a sidecar is no store, and no error."""
    for path in (table.root / "store").iterdir():
        path.unlink()
    assert OpenedStores().open(table.folder, reader(Asked(keys))) is None


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
