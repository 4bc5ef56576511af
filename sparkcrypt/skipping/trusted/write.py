"""Writes and deletes stores of version 4: every index is under its column's key, everything else under the footer's.

New files are written beside the old ones, then the sidecar is replaced, then the old files are deleted: if the writer
is killed, either the old or the new store is complete.  Upstream's readers ignore the sidecar, and see both meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from typing import NamedTuple

from sparkcrypt.errors import ConfigError, FormatError, RunConflictError, VerificationError
from sparkcrypt.files.parquet import DataKey, KeyRequest, read_footer, rewrite_file
from sparkcrypt.skipping.format.store import (
    Row,
    Store,
    is_known,
    measure_row,
    merge_parts,
    read_part,
    rows_of,
    schema_json,
    table_bytes,
    with_rows,
)
from sparkcrypt.skipping.format.values import PART_BYTES, PART_VALUES, part_budget
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import (
    MAX_BYTES,
    SIDECAR,
    ObjectFacts,
    PartSize,
    Sidecar,
    StoreIdentity,
    StoreKeys,
    choose_encryption,
    claimed_generation,
    label_fields,
    seal_sidecar,
)
from sparkcrypt.text import utc_text

ROWS_PER_FILE = 50_000
BYTES_PER_FILE = PART_BYTES // 8
VALUES_PER_FILE = PART_VALUES // 8
"""Limits at which a file of a store ends: rows and bytes as in upstream, and values."""


class _Part(NamedTuple):
    """A written file: its name, the objects of its rows, its size, and its length and file-unique."""

    name: str
    objects: tuple[str, ...]
    size: PartSize
    facts: tuple[int, str]


class StoreWriter:
    """Writes the files of a store as rows are added, then the sidecar; made by `open_writer`.

    It keeps the rows of one file in memory, and the name and facts of every object.
    """

    def __init__(
        self, folder: StoreFolder, shape: Store, keys: StoreKeys, identity: StoreIdentity, standing: Sequence[str]
    ) -> None:
        self._folder, self._shape, self._keys, self._identity = folder, label_fields(shape, keys), keys, identity
        self._standing, self._schema = standing, schema_json(self._shape)
        self._facts: dict[str, ObjectFacts] = {}
        self._rows: list[Row] = []
        self._bytes = self._values = 0
        self._parts: list[_Part] = []
        self._made: dict[bytes | None, bytes] = {}
        self._is_swapping = False

    def note(self, name: str, facts: ObjectFacts) -> None:
        """Record the facts of an object, which may have no row."""
        self._facts[name] = facts

    def add(self, row: Row, facts: ObjectFacts) -> None:
        """Add an object's row and facts; if bounds, values or a partition are unknown, only the facts.

        Raises:
            ConfigError: the folder cannot be written, a value does not have its index's type, or the row is too large
                for a part.
            RunConflictError: another process has taken the lock over.
        """
        self._facts[row.name] = facts
        with _naming(self._folder):
            self._folder.keep_lock()
        if not is_known(self._shape, row):
            return
        size, values = measure_row(row)
        if size > PART_BYTES // 2 or values > PART_VALUES // 2:
            raise ConfigError(
                f"{row.name}: its entries take {size:,} bytes and {values:,} values; allowed: "
                f"{PART_BYTES // 2:,} and {PART_VALUES // 2:,}; index fewer columns by values or Bloom filters"
            )
        self._rows.append(row)
        self._bytes, self._values = self._bytes + size, self._values + values
        is_full = self._bytes >= BYTES_PER_FILE or self._values >= VALUES_PER_FILE
        if is_full or len(self._rows) >= ROWS_PER_FILE:
            self._flush()

    def carry(self, parts: Iterable[Store], objects: Mapping[str, tuple[str, ObjectFacts]]) -> None:
        """Copy the rows of objects from other stores, and record the facts of all given objects.

        Args:
            parts: the stores, with all their indexes; their objects that are not in ``objects`` are left out.
            objects: object, by its name in the stores -> its new name and facts.

        Raises:
            As `add`, and as reading a part.
        """
        for name, facts in objects.values():
            self.note(name, facts)
        for part in parts:
            for row in rows_of(part):
                if row.name in objects:
                    name, facts = objects[row.name]
                    self.add(row._replace(name=name), facts)

    def leave_out(self, names: Collection[str]) -> None:
        """Remove objects; files that contain their rows are rewritten without them.

        Raises:
            As `add`.
        """
        removed = self._facts.keys() & set(names)
        for name in removed:
            del self._facts[name]
        self._rows = [row for row in self._rows if row.name not in removed]
        for part in [part for part in self._parts if not removed.isdisjoint(part.objects)]:
            kept = [row for row in self._read_again(part) if row.name not in removed]
            place = self._parts.index(part)
            self._parts[place : place + 1] = [self._write(kept)] if kept else []
            with _naming(self._folder):
                self._folder.delete(part.name)

    def finish(self, *, digest_key: bytes, fixed_values: Mapping[str, str]) -> Sidecar:
        """Write the remaining rows, replace the sidecar, and delete the old files.

        Args:
            digest_key: the key of the digests of the objects' footers.
            fixed_values: partition column -> its value in every object, if no folder name contains it.

        Raises:
            ConfigError: the folder cannot be written, or the sidecar would be too large.
            RunConflictError: another process has taken the lock over.
        """
        if self._rows or not self._parts:
            self._flush()
        in_order = {name: self._facts[name] for part in self._parts for name in part.objects}
        sidecar = Sidecar(
            self._identity.table_uuid,
            self._identity.generation,
            {part.name: part.facts for part in self._parts},
            in_order | self._facts,
            utc_text(datetime.now(timezone.utc)),
            {part.name: part.size for part in self._parts},
            digest_key,
            fixed_values,
        )
        sealed = seal_sidecar(sidecar, self._keys.make_footer_key())
        with _naming(self._folder):
            self._is_swapping = True
            self._folder.replace(SIDECAR, sealed)
            for name in self._standing:
                self._folder.delete(name)
        return sidecar

    def give_up(self) -> None:
        """Delete the written files, unless the sidecar may name them already."""
        for part in () if self._is_swapping else self._parts:
            self._folder.delete(part.name)

    def _flush(self) -> None:
        self._parts.append(self._write(self._rows))
        self._rows, self._bytes, self._values = [], 0, 0

    def _write(self, rows: Sequence[Row]) -> _Part:
        name = f"part-{len(self._parts):05d}-{uuid.uuid4()}.gz.parquet"
        how = choose_encryption(self._shape, self._schema, self._keys, self._identity.aad_prefix(name))
        self._made |= {
            key.key_metadata: key.key for key in (how.footer, *how.columns.values()) if isinstance(key, DataKey)
        }
        sizes = [measure_row(row) for row in rows]
        held = PartSize(len(rows), sum(size for size, _ in sizes), sum(values for _, values in sizes))
        content = table_bytes(with_rows(self._shape, rows), self._schema)
        with _naming(self._folder):
            rewrite_file(content, self._folder.target(name), encryption=how)
            return _Part(name, tuple([row.name for row in rows]), held, _facts(self._folder, name))

    def _read_again(self, part: _Part) -> Iterator[Row]:
        """Return the rows of a file that this writer wrote, read with the keys that were made for it."""
        opening = partial(self._folder.open, part.name)
        store = merge_parts([read_part(part.name, opening, retrieve_key=self._key, budget=part_budget())])
        return rows_of(store) if store is not None else iter(())

    def _key(self, request: KeyRequest) -> bytes:
        return self._made[request.key_metadata]


@contextmanager
def open_writer(folder: StoreFolder, shape: Store, keys: StoreKeys, identity: StoreIdentity) -> Iterator[StoreWriter]:
    """Lock a store's folder and yield a writer; without `finish` the existing store stays.

    Args:
        folder: a folder only for this table's store; created if it does not exist.
        shape: the table's identifier, partition columns and indexes; its rows are ignored.
        keys: the keys to encrypt with.
        identity: the table, and the generation, which must be later than the existing store's.

    Raises:
        ConfigError: the folder cannot be written, or has other files.
        RunConflictError: another process writes this store, or has written this generation or a later one.
        KeyServiceError: the key service did not wrap a key.
    """
    with ExitStack() as stack:
        with _naming(folder):
            stack.enter_context(folder.lock())
            writer = StoreWriter(folder, shape, keys, identity, _list_replaced_files(folder, identity))
        try:
            yield writer
        except Exception:
            with suppress(OSError):
                writer.give_up()
            raise


@contextmanager
def _naming(folder: StoreFolder) -> Iterator[None]:
    """Translate errors of the file system into ones that name the folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{folder.uri}: cannot be written ({error.strerror or error}); name a folder that is for this store"
        ) from error


def _list_replaced_files(folder: StoreFolder, identity: StoreIdentity) -> list[str]:
    """Return the files that a new store replaces: those of this table's stores, including leftovers of killed writers.

    Raises:
        ConfigError: a file does not belong to this table's stores; it is never deleted.
        RunConflictError: the existing store has this generation or a later one.
    """
    there = standing_generation(folder)
    if there is not None and there >= identity.generation:
        raise RunConflictError(
            f"{folder.uri}: holds generation {there}; expected less than {identity.generation}: read it again"
        )
    return own_files(folder, identity.table_uuid)


def standing_generation(folder: StoreFolder) -> int | None:
    """Return the unauthenticated generation of the store in a folder, or None if there is no sidecar.

    Raises:
        FormatError: the sidecar's content is no sidecar.
        OSError: it cannot be read.
    """
    try:
        with folder.open(SIDECAR) as file:
            return claimed_generation(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return None


def own_files(folder: StoreFolder, table_uuid: str | None) -> list[str]:
    """Return the data files of a store's folder, after checking that all belong to this table's stores.

    Raises:
        ConfigError: a file does not; it is never deleted.
    """
    found = [name for name in folder.names() if not name.startswith((".", "_"))]
    for name in found:
        if not _is_own(folder, name, table_uuid):
            raise ConfigError(
                f"{folder.uri}/{name}: is no file of a store that sparkcrypt wrote for this table; give it a folder "
                "of its own"
            )
    return found


def _is_own(folder: StoreFolder, name: str, table_uuid: str | None) -> bool:
    try:
        prefix = read_footer(folder.target(name)).aad_prefix if folder.is_file(name) else None
    except FormatError:
        return False
    head, sep, _ = StoreIdentity(table_uuid, 0).aad_prefix(name).partition(b"/.index/")
    return prefix is not None and prefix.startswith(head + sep)


def _facts(folder: StoreFolder, name: str) -> tuple[int, str]:
    footer = read_footer(folder.target(name))
    return footer.size, (footer.aad_file_unique or b"").hex()


def drop_store(
    folder: StoreFolder,
    table_uuid: str | None,
    user_of: Callable[[str], str | None],
    note: Callable[[int], None],
) -> tuple[str, ...]:
    """Delete a store's files, the sidecar first, so that the rest is not used if this process is killed.

    Args:
        folder: the store's folder.
        table_uuid: the table's UUID; None for a bare folder.
        user_of: returns a text about the user of a folder, None if it is unused; called before anything is deleted,
            while other writers are locked out.
        note: called with the store's generation before anything is deleted, so that a restored copy is not used.

    Returns:
        The names of the deleted files.

    Raises:
        ConfigError: there is no store, or the folder has files that do not belong to this table's store; nothing is
            deleted.  Or a file cannot be deleted.
        VerificationError: the folder is in use; nothing is deleted.
        RunConflictError: another process writes the store.
    """
    try:
        if all(name.startswith((".", "_")) and name != SIDECAR for name in folder.names()):
            raise ConfigError(f"{folder.uri}: holds no index that sparkcrypt wrote; name the folder of one")
        with folder.lock():
            names = (SIDECAR, *own_files(folder, table_uuid))
            user = user_of(folder.uri)
            if user is not None:
                raise VerificationError(
                    f"{folder.uri}: {user}, so its files stay; point that elsewhere, then drop the index again"
                )
            note(standing_generation(folder) or 0)
            for name in names:
                folder.delete(name)
        folder.delete_folder()
    except OSError as error:
        raise ConfigError(
            f"{folder.uri}: cannot be deleted ({error.strerror or error}); see that this user may write to it"
        ) from error
    return names
