"""The index of a folder's or a table's data files: created, refreshed, verified, compared with the files, and dropped.

Folder and table differ in where their files are, and in what decides on types, partitions and keys: these are a source.
The index is in a store, whose last generation is recorded elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError
from sparkcrypt.files.listing import ListedFile
from sparkcrypt.files.parquet import RetrieveKey
from sparkcrypt.files.parquet.file.footer import footer_of
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.service import KeyService
from sparkcrypt.paths import is_within, split_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.skipping.format.store import Store
from sparkcrypt.skipping.indexes.build import (
    IndexResult,
    Plan,
    Wanted,
    create_store,
    keys_of_store,
    plan_store,
    refresh_store,
)
from sparkcrypt.skipping.indexes.files import DataFolder, RowReader, find_uuid
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar, StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore, open_manifest, open_parts
from sparkcrypt.skipping.trusted.write import drop_store, standing_generation


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a table's files with its store.

    Attributes:
        generation: the store's generation.
        same: number of files that are unchanged, including the footer.
        altered: files with an indexed name, modification time and length but another footer: queries might leave out
            their rows.  Their writer preserved the time, on purpose or by copying.
        changed: files with an indexed name and modification time but another length; queries open them.
        new: files that the store does not contain; queries open them.
        gone: objects of the store whose file no longer exists.
    """

    generation: int
    same: int
    altered: tuple[str, ...]
    changed: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def is_fresh(self) -> bool:
        """Whether a refresh would find nothing to do, and nothing was altered."""
        return not (self.altered or self.changed or self.new or self.gone)


def compare_files(data: DataFolder, sidecar: Sidecar) -> Comparison:
    """Compare a table's files with the objects in its store's sidecar; footers are read but not decrypted.

    Raises:
        StorageError: a file cannot be accessed.
        VerificationError: one of the files is a symbolic link.
    """
    same = 0
    found: dict[str, list[str]] = {"altered": [], "changed": [], "new": []}
    names: set[str] = set()
    for file in data.list_files():
        name = data.object_of(file)
        names.add(name)
        state = _compare_file(data, file, sidecar, sidecar.objects.get(name))
        if state == "same":
            same += 1
        else:
            found[state].append(data.path_of(file.name))
    missing = tuple(name for name in sidecar.objects if name not in names)
    return Comparison(
        sidecar.generation, same, tuple(found["altered"]), tuple(found["changed"]), tuple(found["new"]), missing
    )


def _compare_file(data: DataFolder, file: ListedFile, sidecar: Sidecar, facts: ObjectFacts | None) -> str:
    if facts is None:
        return "new"
    if facts.length != file.length:
        return "changed"
    if facts.footer_digest is None:
        return "same"
    try:
        with open_source(data.source(file.name)) as source:
            footer = footer_of(source, None)
            tail = source.read(footer.offset, source.size - footer.offset, "the footer")
    except FormatError:
        return "altered"
    return "same" if sidecar.footer_digest(tail) == facts.footer_digest else "altered"


@dataclass(frozen=True, slots=True)
class Freshness:
    """Numbers of a table's files that its store covers or does not cover.

    Attributes:
        generation: the store's generation.
        written_at: when the store was written (ISO 8601, UTC);
        indexed: files with an indexed path, modification time and length.
        changed: files with an indexed path and another time or length; queries open them.
        new: files with other paths; queries open them.
        gone: indexed paths at which there is no file any more.
    """

    generation: int
    written_at: str
    indexed: int
    changed: int
    new: int
    gone: int

    @property
    def is_fresh(self) -> bool:
        """Whether a refresh would find nothing to do."""
        return not (self.changed or self.new or self.gone)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "generation": self.generation,
            "written_at": self.written_at,
            "fresh": self.is_fresh,
            "indexed": self.indexed,
            "changed": self.changed,
            "new": self.new,
            "gone": self.gone,
        }


def compare_listing(data: DataFolder, sidecar: Sidecar) -> Freshness:
    """Compare a listing of a table's files with the objects in its store's sidecar.

    Raises:
        StorageError: the files cannot be listed.
        VerificationError: one of them is a symbolic link.
    """
    indexed_paths = {_path(name) for name in sidecar.objects}
    indexed = changed = new = 0
    there: set[str] = set()
    for file in data.list_files():
        name = data.object_of(file)
        there.add(_path(name))
        facts = sidecar.objects.get(name)
        if facts is not None and facts.length == file.length:
            indexed += 1
        elif _path(name) in indexed_paths:
            changed += 1
        else:
            new += 1
    return Freshness(sidecar.generation, sidecar.written_at, indexed, changed, new, len(indexed_paths - there))


def _path(name: str) -> str:
    """Return the path in an object's name, without the modification time after it."""
    return name.rpartition("#")[0]


@dataclass(frozen=True, slots=True)
class Source:
    """Data files that can be indexed, of a folder or of a table.

    Attributes:
        name: the folder, or the name of the table, for messages.
        data: the files.
        read: reads their rows.
        find_uuid: returns the UUID of their table; None if there is none.
        plan: returns a checked plan of their store, before anything is written.
        choose_keys: given an existing store and column -> the present master key of its indexes, returns the same for
            its next generation; columns that are left out are under the footer's key.
        find_user: returns which table uses a folder, or None.
    """

    name: str
    data: DataFolder
    read: RowReader
    find_uuid: Callable[[], str | None]
    plan: Callable[[Wanted], Plan]
    choose_keys: Callable[[Store, Mapping[str, str]], Mapping[str, str]]
    find_user: Callable[[str], str | None]


def folder_source(policy: Policy, data: DataFolder, read: RowReader) -> Source:
    """Return the files of a folder as a source: types, keys and UUID are those in the files.

    Args:
        policy: has the locations of tables.
        data: the files.
        read: reads their rows.
    """
    return Source(
        data.path,
        data,
        read,
        partial(find_uuid, data),
        partial(plan_store, data),
        lambda _, current: current,
        partial(find_table_at, list_locations(policy)),
    )


def list_locations(policy: Policy) -> Iterable[tuple[str, str, str]]:
    """Return name and location of the policy's tables, and that they are from the policy, for `find_table_at`."""
    return [(rule.name, rule.location, "by the policy") for rule in policy.tables if rule.location]


def find_table_at(tables: Iterable[tuple[str, str, str]], folder: str) -> str | None:
    """Return which of these tables is at, in or above a folder; schemes of URIs are ignored.

    Args:
        tables: the name and location of each table, and the source of that.
        folder: the folder.
    """
    here = split_path(folder)[2]
    for name, place, source in tables:
        there = split_path(place)[2]
        if place and (is_within(there, here) or is_within(here, there)):
            return f"table {name} is at {place} {source}"
    return None


class LastGeneration(Protocol):
    """The record of a store's last generation, kept apart from the store."""

    def read(self) -> int:
        """Return the generation that was written last; 0 if none is recorded."""
        ...

    def keep(self, generation: int) -> None:
        """Record that a generation was written, unless a later one is recorded."""
        ...


@dataclass(frozen=True, slots=True)
class IndexStore:
    """The store of an index, which may not exist.

    Attributes:
        policy: names the keys.
        table_uuid: the UUID of the files' table; None for a bare folder.
        folder: the folder of the store.
        record: the record of its last generation.
        service: wraps and unwraps keys.
    """

    policy: Policy
    table_uuid: str | None
    folder: StoreFolder
    record: LastGeneration
    service: KeyService
    _retrieve: RetrieveKey = field(repr=False)

    def open(self, generation: int) -> TrustedStore:
        """Open the store, which may not be older than a generation; its labels name the keys of its indexes.

        Raises:
            As `open_parts`.
        """
        expected = Expected.of(self.policy, self.table_uuid, None, generation or None)
        return open_parts(self.folder, self._retrieve, expected)

    def open_manifest(self) -> Sidecar | None:
        """Open only the sidecar; None if there is no store that sparkcrypt wrote, or the footer's key is denied.

        Raises:
            As `open_manifest`.
        """
        if standing_generation(self.folder) is None:
            return None
        try:
            return open_manifest(self.folder, self._retrieve, Expected.of(self.policy, self.table_uuid, None))
        except KeyAccessDeniedError:
            return None

    def keys_of(self, opened: TrustedStore) -> dict[str, str]:
        """Return column -> the master key that its indexes are under, if it is not the footer's."""
        return keys_of_store(opened.store, self.policy.footer_key)

    def make_keys(self, columns: Mapping[str, str]) -> StoreKeys:
        """Return the keys to encrypt the store with, from the master keys of its columns."""
        own = {column: key for column, key in columns.items() if key != self.policy.footer_key}
        maker = DataKeyMaker(self.service, data_key_bits=self.policy.data_key_bits)
        return StoreKeys(maker, self.policy.footer_key, own)

    def drop(self, find_user: Callable[[str], str | None]) -> tuple[str, ...]:
        """Delete the store, which counts as a generation; return the names of the deleted files.

        Raises:
            As `drop_store`.
        """
        return drop_store(self.folder, self.table_uuid, find_user, lambda generation: self.record.keep(generation + 1))


class Indexed:
    """Data files and their index, which may not exist yet.

    Args:
        source: the files.
        find_store: returns the store, given the UUID of their table.
    """

    def __init__(self, source: Source, find_store: Callable[[str | None], IndexStore]) -> None:
        self.source, self._find_store = source, find_store

    @cached_property
    def store(self) -> IndexStore:
        """The store of the index."""
        return self._find_store(self.source.find_uuid())

    def create(self, wanted: Wanted) -> IndexResult:
        """Index the files; an existing index is replaced.

        Raises:
            ConfigError: a column cannot be indexed, or the store cannot be written.
            VerificationError: a file is another table's, or is not authentic.
            KeyServiceError: a key is denied or not available.
        """
        plan = self.source.plan(wanted)
        store = self._find_store(plan.table_uuid)
        keys = store.make_keys({name: column.key for name, column in plan.columns.items() if column.key is not None})
        built = create_store(store.folder, plan, keys, generation=store.record.read(), read=self.source.read)
        store.record.keep(built.generation)
        return built

    def refresh(self) -> IndexResult:
        """Update the index: read new and changed files, and encrypt what is known of each column under its key.

        Raises:
            ConfigError: there is no index, or a file does not fit it.
            KeyAccessDeniedError: the key of a column is denied, so what is known of it cannot be copied.
            RunConflictError: another process wrote the store meanwhile.
        """
        opened, last = self._open()
        keys = self.store.make_keys(self.source.choose_keys(opened.store, self.store.keys_of(opened)))
        built = refresh_store(self.store.folder, self.source.data, opened, keys, generation=last, read=self.source.read)
        self.store.record.keep(built.generation)
        return built

    def verify(self) -> Comparison:
        """Authenticate the parts of the store one by one, and compare its index with the files.

        Raises:
            ConfigError: there is no index.
            FormatError, VerificationError: the store is damaged, or forged.
        """
        opened, _ = self._open()
        for _ in opened.parts():
            pass
        return compare_files(self.source.data, opened.sidecar)

    def compare_listing(self) -> Freshness | None:
        """Compare the index with a listing of the files; None if there is none, or its footer's key is denied."""
        sidecar = self.store.open_manifest()
        return None if sidecar is None else compare_listing(self.source.data, sidecar)

    def drop(self) -> tuple[str, ...]:
        """Delete the index, unless a table uses its store's folder; return the names of the deleted files.

        Raises:
            As `drop_store`.
        """
        return self.store.drop(self.source.find_user)

    def _open(self) -> tuple[TrustedStore, int]:
        """Return the opened store, and the last generation that is recorded of it."""
        if self.source.data.partitions is not None and standing_generation(self.store.folder) is None:
            raise ConfigError(
                f"{self.source.name} has no index at {self.store.folder.uri}; make one with `sparkcrypt index create`"
            )
        last = self.store.record.read()
        return self.store.open(last), last
