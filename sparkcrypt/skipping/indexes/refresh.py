"""Refreshes a store: reads only new and changed files, and copies the entries of the others.

A file is unchanged if its path, modification time and length are, and its entries are then copied.  The new store is
written as a whole beside the old one, under the next generation, and the sidecar is replaced last; until then the old
store is in effect.
"""

from __future__ import annotations

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, VerificationError
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import table_identifier
from sparkcrypt.skipping.indexes.create import AddedRows, Built
from sparkcrypt.skipping.indexes.files import DataFolder, FileRow, RowReader, RowsWanted, list_folder, read_rows
from sparkcrypt.skipping.indexes.partitions import check_folders
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.store_keys import StoreIdentity, StoreKeys
from sparkcrypt.skipping.trusted.trust import TrustedStore, key_of
from sparkcrypt.skipping.trusted.write import open_writer

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
    _check_store(data, opened)
    listing = list_folder(data)
    objects = opened.sidecar.objects
    there = {data.object_of(file): file for file in listing.settled}
    carried = {name for name, file in there.items() if name in objects and objects[name].length == file.length}
    new = [file for name, file in there.items() if name not in carried]
    if not new and carried == objects.keys() and keys.columns == keys_of_store(opened.store, keys.footer):
        return Built(opened.sidecar, 0, listing.too_young, {}, written=False)
    partitions = [column.column for column, _ in opened.store.partitions if column.column not in opened.sidecar.given]
    for file in new:
        check_folders(file.name, partitions)
    sidecar = opened.sidecar
    identity = StoreIdentity(sidecar.table_uuid, max(generation, sidecar.generation) + 1)
    with open_writer(folder, opened.store, keys, identity) as writer:
        writer.carry(opened.parts(), {name: (name, facts) for name, facts in objects.items() if name in carried})
        adding = AddedRows(writer, data, opened.store, sidecar.given)
        wanted = RowsWanted(data, [held.index for held in opened.store.indexes], sidecar.digest_key)
        rows = read(wanted, new)
        adding.add_all(new, (_check_row(data, row, opened, keys) for row in rows))
        written = writer.finish(digest_key=sidecar.digest_key, fixed_values=sidecar.given)
    return Built(written, adding.read, (*listing.too_young, *adding.changed), adding.unknown)


def keys_of_store(store: Store, footer_key: str) -> dict[str, str]:
    """Return column -> the master key of its index, for indexes that are not under the footer's key."""
    found = {entry.index.columns[0]: key_of(entry.index) for entry in store.indexes}
    return {column: key for column, key in found.items() if key is not None and key != footer_key}


def _check_store(data: DataFolder, opened: TrustedStore) -> None:
    """Refuse the store of another folder; a table's store is identified by the table's UUID, not by its folder."""
    if data.partitions is None and opened.store.table != table_identifier(data.path):
        raise ConfigError(
            f"{data.path}: the store is that of {opened.store.table}; name that folder, or {_CREATE} of this one"
        )
    refuse_denied_indexes(opened)


def refuse_denied_indexes(opened: TrustedStore) -> None:
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


def _check_row(data: DataFolder, row: FileRow, opened: TrustedStore, keys: StoreKeys) -> FileRow:
    """Return a row, after checking its file's table and that each column has its index's key, which would else leak.

    For a table of the metastore keys are not compared: its indexes are under the keys of its plan, while files that no
    run has rewritten yet may be under earlier ones.

    Raises:
        ConfigError, VerificationError: a check failed; the message names the file.
    """
    if row.table_uuid not in (None, opened.sidecar.table_uuid):
        raise VerificationError(
            f"{data.path_of(row.name)}: is a file of table {row.table_uuid}, and the store is that of "
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
    return row
