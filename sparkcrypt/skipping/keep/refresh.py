"""Keeps a store true: reads new and changed files alone, takes over what is known of the others, and swaps.

A file is the one that was indexed if its path, time of change and length are.  What the store says of it is carried
over as it is; the new store is written whole beside the old one, under the next generation, and its sidecar is
replaced last.  Until then the old store is the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, VerificationError
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import table_identifier
from sparkcrypt.skipping.format.values import Budget
from sparkcrypt.skipping.keep.columns import one_uuid
from sparkcrypt.skipping.keep.create import Built, count_unknown, partition_entries
from sparkcrypt.skipping.keep.entries import take_room
from sparkcrypt.skipping.keep.files import DataFolder, FileRow, RowReader, changed_since, list_folder, read_rows
from sparkcrypt.skipping.keep.partitions import check_folders
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import Sidecar
from sparkcrypt.skipping.trusted.trust import TrustedStore, key_of
from sparkcrypt.skipping.trusted.write import StoreIdentity, StoreKeys, write_store

_CREATE = "`sparkcrypt index create` makes the store anew"


def refresh_store(
    folder: StoreFolder,
    data: DataFolder,
    opened: TrustedStore,
    keys: StoreKeys,
    *,
    generation: int = 0,
    read: RowReader = read_rows,
) -> Built:
    """Bring a store up to date.

    Args:
        folder: of the store.
        data: the files' folder, the one that was indexed.
        opened: the store, with all its indexes.
        keys: to encrypt with; its columns are those of `keys_of_store`, or of a table's plan.
        generation: the last one that is known elsewhere; the new store's is later.
        read: reads the files.

    Raises:
        ConfigError: it is the store of another folder, or a new file does not go with it: the message says why.
        KeyAccessDeniedError: an index cannot be carried over without its key.
        RunConflictError: another process wrote the store meanwhile.
        As `create_store`.
    """
    _check_store(data, opened)
    listing = list_folder(data)
    known = opened.sidecar.objects
    there = {data.object_of(file): file for file in listing.settled}
    carried = {name for name, file in there.items() if name in known and known[name].length == file.length}
    new = [file for name, file in there.items() if name not in carried]
    if not new and carried == known.keys() and keys.columns == keys_of_store(opened.store, keys.footer):
        return Built(opened.sidecar, 0, listing.too_young, {}, written=False)
    partitions = [column.column for column, _ in opened.store.partitions if column.column not in opened.sidecar.given]
    for file in new:
        check_folders(file.name, partitions)
    indexes = [held.index for held in opened.store.indexes]
    budget = _left_budget(opened.store, carried)
    rows = list(read(data, new, indexes, opened.sidecar.digest_key, budget))
    changed = changed_since(data, new)
    kept = [row for row in rows if row.name not in changed]
    _check_rows(data, kept, opened, keys)
    sidecar = write_store(
        folder,
        _store(opened.store, carried, kept, opened.sidecar),
        {name: facts for name, facts in known.items() if name in carried} | {row.object: row.facts for row in kept},
        keys,
        StoreIdentity(opened.sidecar.table_uuid, max(generation, opened.sidecar.generation) + 1),
        digest_key=opened.sidecar.digest_key,
        given=opened.sidecar.given,
    )
    left_out = (*listing.too_young, *(data.path_of(name) for name in sorted(changed)))
    return Built(sidecar, len(rows), left_out, count_unknown(kept))


def keys_of_store(store: Store, footer_key: str) -> dict[str, str]:
    """Return column -> the master key of its index, for columns that have one of their own."""
    found = {entry.index.columns[0]: key_of(entry.index) for entry in store.indexes}
    return {column: key for column, key in found.items() if key is not None and key != footer_key}


def _left_budget(store: Store, carried: set[str]) -> Budget:
    """Return what a store may still hold beside what is carried over."""
    budget = Budget()
    for row, name in enumerate(store.objects):
        if name in carried:
            take_room(budget, name, [held.entries[row] for held in store.indexes])
    return budget


def _check_store(data: DataFolder, opened: TrustedStore) -> None:
    """Refuse the store of another folder; that of a table is known by the table's UUID, wherever its files lie."""
    if data.partitions is None and opened.store.table != table_identifier(data.path):
        raise ConfigError(
            f"{data.path}: the store is that of {opened.store.table}; name that folder, or {_CREATE} of this one"
        )
    refuse_denied_indexes(opened)


def refuse_denied_indexes(opened: TrustedStore) -> None:
    """Refuse a store with an index that was not read: it would be lost.

    Raises:
        KeyAccessDeniedError: with the index's column.
    """
    for entry in opened.store.indexes:
        if entry.unused is not None:
            raise KeyAccessDeniedError(
                f"the index of {', '.join(entry.index.columns)} cannot be carried over: {entry.unused}; refresh with "
                f"credentials that may use its key, or {_CREATE} without it"
            )


def _check_rows(data: DataFolder, rows: Sequence[FileRow], opened: TrustedStore, keys: StoreKeys) -> None:
    """Refuse files of another table, and a column under another key than its index: bounds would leak by the old one.

    The indexes of a table are under the keys of its plan, whatever the keys of files that no run has rewritten yet.

    Raises:
        ConfigError, VerificationError: with the file's name.
    """
    for row in rows:
        uuid = one_uuid(data.path, {uuid for uuid in (row.table_uuid,) if uuid is not None})
        if uuid is not None and uuid != opened.sidecar.table_uuid:
            raise VerificationError(
                f"{data.path_of(row.name)}: is a file of table {uuid}, and the store is that of "
                f"{opened.sidecar.table_uuid or 'a bare folder'}; {_CREATE}"
            )
        for column, found in row.keys.items():
            others = {key for key in found if key is not None} - {keys.columns.get(column)}
            if others and data.partitions is None:
                there, own = ", ".join(sorted(others)), keys.columns.get(column, keys.footer)
                raise ConfigError(
                    f"{data.path_of(row.name)}: has column {column!r} under {there}, and its index is under {own}; "
                    f"{_CREATE} under the new key"
                )


def _store(store: Store, carried: set[str], rows: Sequence[FileRow], sidecar: Sidecar) -> Store:
    """Return what a new store holds: of carried objects what the old one did, and what new files say."""
    kept = [number for number, name in enumerate(store.objects) if name in carried]
    return replace(
        store,
        objects=(*(store.objects[number] for number in kept), *(row.object for row in rows)),
        partitions=tuple(
            (column, (*(values[number] for number in kept), *partition_entries(column, rows, sidecar.given)))
            for column, values in store.partitions
        ),
        indexes=tuple(
            replace(
                entry,
                entries=(
                    *(entry.entries[number] for number in kept),
                    *(row.entries[entry.index] for row in rows),
                ),
            )
            for entry in store.indexes
        ),
    )
