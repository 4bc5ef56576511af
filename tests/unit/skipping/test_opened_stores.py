"""Stores that are kept open for the next query: for whom, how long, how many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import KeyAccessDeniedError, VerificationError
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.skipping.query.predicate import Compare
from sparkcrypt.skipping.query.skip_files import OpenedStore, OpenedStores, PartedStore, Reader
from sparkcrypt.skipping.query.skipper import Listed
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
