"""Builds stores: creates one from all data files, refreshes it from new and changed files, or carries it to new names.

Creating checks all footers first, then reads the files and writes the entries.

Refreshing copies the entries of unchanged files, whose path, modification time and length are as indexed.  The new
store is written as a whole beside the old one, under the next generation, and the sidecar is replaced last; until then
the old store is in effect.

Carrying gives the entries of files to new files that were proven to contain the same rows, without reading a row.  The
whole store is written under the next generation, with each index under its column's current key, so that no index stays
under a key that its column no longer has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.decide.identity import table_uuid_of
from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, VerificationError
from sparkcrypt.files.listing import ListedFile
from sparkcrypt.skipping.format.description import (
    BLOOM,
    MINMAX,
    VALUES,
    VERSION,
    Index,
    PartitionColumn,
    table_identifier,
)
from sparkcrypt.skipping.format.store import IndexEntries, Row, Store
from sparkcrypt.skipping.indexes.entries import FILTER_SHARE, LIST_VALUES, ReadFile, make_index
from sparkcrypt.skipping.indexes.files import (
    Column,
    DataFolder,
    Listing,
    RowReader,
    RowsWanted,
    changed_since,
    check_folders,
    folder_values,
    keys_of,
    list_folder,
    look_at_columns,
    partition_columns,
    partition_value,
    read_rows,
)
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar, StoreIdentity, StoreKeys
from sparkcrypt.skipping.trusted.trust import TrustedStore, key_of
from sparkcrypt.skipping.trusted.write import open_writer, standing_generation

KINDS = {"minmax": MINMAX, "values": VALUES, "bloom": BLOOM}
"""Name of a kind of index for users -> its name in stores."""
_CREATE = "`sparkcrypt index create` makes the index anew"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested content of a store.

    Attributes:
        kinds: top-level column -> the kinds of its indexes, as named in stores.
        types: partition column -> its type, if it is not a string.
        given: partition column -> its value in every file, if no folder name contains it.
        most_values: maximum number of distinct values in the list of an object.
        false_positives: share of false positives of Bloom filters.
    """

    kinds: Mapping[str, tuple[str, ...]]
    types: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    most_values: int = LIST_VALUES
    false_positives: float = FILTER_SHARE

    def make_indexes(self, columns: Mapping[str, Column]) -> tuple[Index, ...]:
        """Return the indexes to make of columns, whose names are the requested ones in any case.

        Raises:
            As `make_index`.
        """
        kinds = {name.lower(): kinds for name, kinds in self.kinds.items()}
        return tuple(
            make_index(name, kind, column.kind, most_values=self.most_values, false_positives=self.false_positives)
            for name, column in columns.items()
            for kind in kinds[name.lower()]
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked plan of a store.

    Attributes:
        listing: the files.
        table_uuid: the table's UUID in the files; None for a bare folder.
        columns: column -> its type and key.
        indexes: the indexes to make.
        partitions: the partition columns.
        given: as in `Wanted`.
    """

    listing: Listing
    table_uuid: str | None
    columns: Mapping[str, Column]
    indexes: tuple[Index, ...]
    partitions: tuple[PartitionColumn, ...]
    given: Mapping[str, str]


_UNKNOWN = {MINMAX: "unknown", VALUES: "unknown_values", BLOOM: "unknown_filters"}
"""Kind of index -> the JSON field with its unknown entries."""


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The result of creating or refreshing an index.

    Attributes:
        store: the store's folder.
        sidecar: the store's sidecar.
        read: number of files that were read.
        left_out: files that are too young, or that changed while they were read.
        unknown: ``column kind`` -> reason -> number of the read files of which the index has nothing.
        written: False if nothing had changed, so that nothing was written.
    """

    store: str
    sidecar: Sidecar = field(repr=False)
    read: int
    left_out: tuple[str, ...]
    unknown: Mapping[str, Mapping[str, int]]
    written: bool = True

    @property
    def generation(self) -> int:
        """The store's generation."""
        return self.sidecar.generation

    @property
    def objects(self) -> int:
        """Number of files in the store."""
        return len(self.sidecar.objects)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        unknown: dict[str, dict[str, Any]] = {name: {} for name in _UNKNOWN.values()}
        for index, reasons in self.unknown.items():
            column, _, kind = index.rpartition(" ")
            unknown[_UNKNOWN[kind]][column] = dict(reasons)
        return {
            "store": self.store,
            "generation": self.generation,
            "table_uuid": self.sidecar.table_uuid,
            "objects": self.objects,
            "read": self.read,
            "written": self.written,
            "left_out": list(self.left_out),
            **unknown,
        }


def read_kinds(columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return column -> the kinds of its indexes by their names in stores; a repeated column, in any case, has them all.

    Args:
        columns: each ``COL`` or ``COL:KIND…``; two colons follow a column name that itself ends in ``:KIND``.
    """
    found: dict[str, dict[str, None]] = {}
    spelled: dict[str, str] = {}
    for value in columns:
        column, kinds = value, dict[str, None]()
        while (parts := column.rpartition(":"))[0] and parts[2] in KINDS:
            column, kinds = parts[0], {KINDS[parts[2]]: None, **kinds}
        if kinds:
            column = column.removesuffix(":")  # separates a name that itself ends in a kind from the kinds
        found.setdefault(spelled.setdefault(column.lower(), column), {}).update(kinds or {MINMAX: None})
    return {column: tuple(kinds) for column, kinds in found.items()}


def plan_store(data: DataFolder, wanted: Wanted) -> Plan:
    """Read every footer and return the plan of a store, before anything is written.

    Raises:
        ConfigError: there is no file, a column cannot have these indexes, or partition columns are inconsistent.
        VerificationError: a file was moved, or has an algorithm that the policy never had.
        FormatError: a file is damaged.
        KeyServiceError: a key is denied or unavailable.
    """
    listing = list_folder(data)
    if not listing.settled and not listing.too_young:
        raise ConfigError(f"{data.path}: holds no data files; name a folder of them")
    partitions = partition_columns([file.name for file in listing.settled], wanted.types, wanted.given)
    taken = {column.column.lower() for column in partitions}
    if twice := [column for column in wanted.kinds if column.lower() in taken]:
        raise ConfigError(f"column {twice[0]!r}: is a partition column, which every index has; leave it out")
    uuid, columns = look_at_columns(data, listing.settled, tuple(wanted.kinds))
    return Plan(listing, uuid, columns, wanted.make_indexes(columns), partitions, dict(wanted.given))


def create_store(
    folder: StoreFolder, plan: Plan, keys: StoreKeys, *, generation: int = 0, read: RowReader = read_rows
) -> IndexResult:
    """Read files and write a store, which replaces an existing one; entries are written while files are read.

    Args:
        folder: the store's folder, outside the data's.
        plan: the plan of the store.
        keys: the keys to encrypt with; its columns are those of the plan.
        generation: the last generation recorded elsewhere; the new store's is later.
        read: reads the files.

    Raises:
        As `plan_store` and `open_writer`.
    """
    shape = Store(
        VERSION,
        table_identifier(plan.listing.data.path),
        None,
        (),
        tuple([(column, ()) for column in plan.partitions]),
        tuple([IndexEntries(index) for index in plan.indexes]),
    )
    try:
        standing = standing_generation(folder) or 0
    except OSError as error:
        raise ConfigError(
            f"{folder.uri}: its sidecar cannot be read ({error.strerror or error}); see that it may be read"
        ) from error
    empty = TrustedStore(shape, Sidecar(plan.table_uuid, standing, {}, {}, "", {}, given=plan.given))
    return _write_next(folder, plan.listing, empty, keys, generation, read)


def refresh_store(
    folder: StoreFolder,
    data: DataFolder,
    opened: TrustedStore,
    keys: StoreKeys,
    *,
    generation: int = 0,
    read: RowReader = read_rows,
) -> IndexResult:
    """Write the next generation of a store for the current files, if they or the keys have changed.

    Args:
        folder: the store's folder.
        data: the files' folder, the one that was indexed.
        opened: the store, with all its indexes.
        keys: the keys to encrypt with; its columns are those of `keys_of_store`, or of a table's plan.
        generation: the last generation recorded elsewhere; the new store's is later.
        read: reads the files.

    Raises:
        ConfigError: it is the store of another folder, or a new file does not fit it; the message has the reason.
        KeyAccessDeniedError: the key of an index is denied, so its entries cannot be copied.
        RunConflictError: another process wrote the store meanwhile.
        As `create_store`.
    """
    if data.partitions is None and opened.store.table != table_identifier(data.path):
        raise ConfigError(
            f"{data.path}: the index is that of {opened.store.table}; name that folder, or {_CREATE} of this one"
        )
    _refuse_denied_indexes(opened)
    return _write_next(folder, list_folder(data), opened, keys, generation, read)


def _write_next(
    folder: StoreFolder, listing: Listing, opened: TrustedStore, keys: StoreKeys, generation: int, read: RowReader
) -> IndexResult:
    """Write a store's next generation for listed files, unless there is a store and nothing has changed."""
    data, sidecar, objects = listing.data, opened.sidecar, opened.sidecar.objects
    there = {data.object_of(file): file for file in listing.settled}
    carried = {name for name, file in there.items() if name in objects and objects[name].length == file.length}
    new = [file for name, file in there.items() if name not in carried]
    unchanged = not new and carried == objects.keys() and keys.columns == keys_of_store(opened.store, keys.footer)
    if sidecar.files and unchanged:
        return IndexResult(folder.uri, sidecar, 0, listing.too_young, {}, written=False)
    partitions = [column.column for column, _ in opened.store.partitions if column.column not in sidecar.given]
    for file in new:
        check_folders(file.name, partitions)
    identity = StoreIdentity(sidecar.table_uuid, max(generation, sidecar.generation) + 1)
    number, unknown = 0, dict[str, dict[str, int]]()
    with open_writer(folder, opened.store, keys, identity) as writer:
        writer.carry(opened.parts(), {name: (name, facts) for name, facts in objects.items() if name in carried})
        wanted = RowsWanted(data, [held.index for held in opened.store.indexes], sidecar.digest_key)
        for file, found in read(wanted, new):
            number += 1
            _check_file(data, file, found, opened, keys)
            writer.add(_make_row(data, file, found, opened), found.facts)
            for index, why in found.unknown.items():
                reasons = unknown.setdefault(f"{index.columns[0]} {index.kind}", {})
                reasons[why] = reasons.get(why, 0) + 1
        changed = changed_since(data, new)
        writer.leave_out([data.object_of(file) for file in new if file.name in changed])
        written = writer.finish(digest_key=sidecar.digest_key, fixed_values=sidecar.given)
    left_out = (*listing.too_young, *(data.path_of(name) for name in sorted(changed)))
    return IndexResult(folder.uri, written, number, left_out, unknown)


def _make_row(data: DataFolder, file: ListedFile, found: ReadFile, opened: TrustedStore) -> Row:
    store = opened.store
    texts = {**opened.sidecar.given, **folder_values(file.name)} if store.partitions else {}
    partitions = tuple([partition_value(texts[column.column], column.type) for column, _ in store.partitions])
    return Row(data.object_of(file), partitions, tuple([found.entries[held.index] for held in store.indexes]))


def _check_file(data: DataFolder, file: ListedFile, found: ReadFile, opened: TrustedStore, keys: StoreKeys) -> None:
    """Check a file's table, and that each column has the key of its index, which would else leak.

    For a table of the metastore keys are not compared: its indexes are under the keys of its plan, while files that no
    run has rewritten yet may be under earlier ones.

    Raises:
        ConfigError, VerificationError: a check failed; the message names the file.
    """
    path, table_uuid = data.path_of(file.name), table_uuid_of(found.summary.aad_prefix)
    if table_uuid not in (None, opened.sidecar.table_uuid):
        raise VerificationError(
            f"{path}: is a file of table {table_uuid}, and the index is that of "
            f"{opened.sidecar.table_uuid or 'a bare folder'}; move the file to its table, or {_CREATE}"
        )
    for column in {index.columns[0] for index in found.entries} if data.partitions is None else ():
        own = keys.columns.get(column, keys.footer)
        others = keys_of(column, found.summary) - {None, own}
        if others:
            raise ConfigError(
                f"{path}: has column {column!r} under {', '.join(map(str, sorted(others, key=str)))}, and its index is "
                f"under {own}; {_CREATE} under the new key"
            )


def keys_of_store(store: Store, footer_key: str) -> dict[str, str]:
    """Return column -> the master key of its index, for indexes that are not under the footer's key."""
    found = {entry.index.columns[0]: key_of(entry.index) for entry in store.indexes}
    return {column: key for column, key in found.items() if key is not None and key != footer_key}


def _refuse_denied_indexes(opened: TrustedStore) -> None:
    """Refuse a store with an index that was not read, since its entries would be lost.

    Raises:
        KeyAccessDeniedError: there is such an index; the message names its column.
    """
    for entry in opened.store.indexes:
        if entry.unused is not None:
            raise KeyAccessDeniedError(
                f"the index of {', '.join(entry.index.columns)} cannot be carried over: {entry.unused}; refresh with "
                f"credentials that may use its key, or {_CREATE} without it"
            )


def carry_store(
    folder: StoreFolder,
    opened: TrustedStore,
    renamed: Mapping[str, tuple[str, ObjectFacts]],
    removed: Collection[str],
    keys: StoreKeys,
    *,
    generation: int = 0,
) -> Sidecar:
    """Write the next generation of a store with the new names of its objects.

    Args:
        folder: the store's folder.
        opened: the store, with all its indexes.
        renamed: object -> the name and facts of the file that was proven to contain its rows.
        removed: objects whose entries are dropped.
        keys: the keys to encrypt with; indexes of columns that it does not name are under the footer's key.
        generation: the last generation recorded elsewhere; the new store's is later.

    Returns:
        The new sidecar.

    Raises:
        KeyAccessDeniedError: the key of an index is denied, so its entries cannot be copied.
        As `open_writer`, and as reading a part.
    """
    _refuse_denied_indexes(opened)
    sidecar = opened.sidecar
    identity = StoreIdentity(sidecar.table_uuid, max(generation, sidecar.generation) + 1)
    with open_writer(folder, opened.store, keys, identity) as writer:
        now = {name: (name, facts) for name, facts in sidecar.objects.items() if name not in removed}
        writer.carry(opened.parts(), now | {name: new for name, new in renamed.items() if name in now})
        return writer.finish(digest_key=sidecar.digest_key, fixed_values=sidecar.given)
