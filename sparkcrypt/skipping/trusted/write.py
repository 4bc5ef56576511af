"""Writes stores of version 4, encrypted: every index under its column's key, everything else under the footer's.

New files are written whole beside the old ones, then the sidecar is replaced, then the old files go: whoever is killed
in between leaves the store that was there.  Upstream's readers know no sidecar, and see both until the old files go.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import ConfigError, FormatError, RunConflictError
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    Target,
    folders_synced_once,
    read_footer,
    rewrite_file,
)
from sparkcrypt.parquet.file.schema import Path as ColumnPath
from sparkcrypt.parquet.rewrite.encryption import ColumnKey
from sparkcrypt.skipping.format.description import Index, Labels
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import BLOOM, OBJECT, PARTITION_PREFIX, VERSION, field_name
from sparkcrypt.skipping.format.store import UNKNOWN
from sparkcrypt.skipping.format.table import leaf_paths_of, schema_json, table_bytes
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import (
    MAX_BYTES,
    SIDECAR,
    ObjectFacts,
    Sidecar,
    claimed_generation,
    new_digest_key,
    seal_sidecar,
)
from sparkcrypt.text import utc_text

ROWS_PER_FILE = 50_000
BYTES_PER_FILE = 32 * 1024 * 1024
"""As upstream has it: what a file holds at most, in rows and in bytes of Bloom filters."""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Whose store it is: the table's UUID (None of a bare folder), and which of its writes, from 1 on."""

    table_uuid: str | None
    generation: int

    def aad_prefix(self, name: str) -> bytes:
        """Return the AAD prefix of a file of the store: no data file's, and no other generation's."""
        return FileIdentity(self.table_uuid, f".index/{self.generation}", name).to_aad_prefix()


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """What a store is encrypted with.

    Attributes:
        maker: makes data keys.
        footer: the master key of everything that has no key of its own.
        columns: column -> the master key of its indexes; columns that are not tagged are left out.
    """

    maker: DataKeyMaker
    footer: str
    columns: Mapping[str, str]

    def of(self, index: Index) -> str:
        """Return the master key of an index."""
        own = {self.columns[column] for column in index.columns if column in self.columns}
        return own.pop() if len(own) == 1 else self.footer


def write_store(
    folder: StoreFolder,
    store: Store,
    objects: Mapping[str, ObjectFacts],
    keys: StoreKeys,
    identity: StoreIdentity,
    *,
    digest_key: bytes | None = None,
    given: Mapping[str, str] | None = None,
) -> Sidecar:
    """Write a store in place of the one that is there.

    An object of which bounds or values are not known has no row: upstream would take the missing entry for a column of
    nulls.  It stays among the sidecar's objects.

    Args:
        folder: of this table's store alone; made if it is not there.
        store: what to write; its labels and the fields' names are made here.
        objects: object -> what it was, for every object of the store and any others that were seen.
        keys: to encrypt with.
        identity: the table, and the generation, which must be larger than the one that is there.
        digest_key: under which the objects' footers were digested; None makes a new one.
        given: partition column -> its value in every object, where no folder tells it.

    Returns:
        The sidecar, as it was written.

    Raises:
        ConfigError: the folder cannot be written or holds other files, or a value is not of its index's type.
        RunConflictError: another process writes this store, or has written this generation or a later one.
        KeyServiceError: the key service did not wrap a key.
    """
    missing = [name for name in store.objects if name not in objects]
    if missing:
        raise ConfigError(f"{missing[0]}: nothing is known of its length; give the facts of every object of the store")
    try:
        with folder.lock():
            now = utc_text(datetime.now(timezone.utc))
            digest_key = digest_key or new_digest_key()
            made = Sidecar(identity.table_uuid, identity.generation, {}, objects, digest_key, given or {}, now)
            return _write(folder, _label_fields(_drop_unknown(store), keys), keys, identity, made)
    except OSError as error:
        raise ConfigError(
            f"{folder.uri}: cannot be written ({error.strerror or error}); name a folder that is for this store"
        ) from error


def _write(folder: StoreFolder, store: Store, keys: StoreKeys, identity: StoreIdentity, made: Sidecar) -> Sidecar:
    before = _standing(folder, identity)
    schema, files = schema_json(store), {}
    with folders_synced_once():
        for number, rows in enumerate(_slices(store)):
            name = f"part-{number:05d}-{uuid.uuid4()}.gz.parquet"
            how = _encryption(store, schema, keys, identity.aad_prefix(name))
            rewrite_file(table_bytes(rows, schema), folder.target(name), encryption=how)
            files[name] = _facts(folder.target(name))
    sidecar = replace(made, files=files)
    folder.replace(SIDECAR, seal_sidecar(sidecar, DataKey(*keys.maker.make(keys.footer, is_footer_key=True))))
    for name in before:
        folder.delete(name)
    return sidecar


def _standing(folder: StoreFolder, identity: StoreIdentity) -> list[str]:
    """Return the files that a new store takes the place of: of this table's stores, leftovers of killed writes too.

    Raises:
        ConfigError: there is a file that is none of this table's index, which is never removed.
        RunConflictError: the store that is there is of this generation or a later one.
    """
    there = standing_generation(folder)
    if there is not None and there >= identity.generation:
        raise RunConflictError(
            f"{folder.uri}: holds generation {there}; expected less than {identity.generation}: read it again"
        )
    return own_files(folder, identity.table_uuid)


def standing_generation(folder: StoreFolder) -> int | None:
    """Return the generation that the store in a folder claims; None where there is none.

    Raises:
        FormatError: what is there is no sidecar.
        OSError: it cannot be read.
    """
    try:
        with folder.open(SIDECAR) as file:
            return claimed_generation(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return None


def own_files(folder: StoreFolder, table_uuid: str | None) -> list[str]:
    """Return the data files of a store's folder, all of which are of this table's stores.

    Raises:
        ConfigError: one is not; it is never removed.
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


def _drop_unknown(store: Store) -> Store:
    """Return a store without the objects of which bounds, values or a partition are not known."""
    columns = [index.entries for index in store.indexes if index.index.kind != BLOOM]
    values = [values for _, values in store.partitions]
    kept = [
        row
        for row in range(len(store.objects))
        if all(entries[row] is not None for entries in columns) and all(value[row] is not UNKNOWN for value in values)
    ]
    return _rows(store, kept)


def _rows(store: Store, kept: Sequence[int]) -> Store:
    return replace(
        store,
        objects=tuple([store.objects[row] for row in kept]),
        partitions=tuple((column, tuple([values[row] for row in kept])) for column, values in store.partitions),
        indexes=tuple(replace(index, entries=tuple([index.entries[row] for row in kept])) for index in store.indexes),
    )


def _slices(store: Store) -> Iterator[Store]:
    """Yield the rows of each file: few enough, and no more bytes of Bloom filters than upstream puts into one."""
    kept: list[int] = []
    size = 0
    blooms = [index.entries for index in store.indexes if index.index.kind == BLOOM]
    for row in range(len(store.objects)):
        kept.append(row)
        size += sum(len(bloom) for bloom in (entries[row] for entries in blooms) if isinstance(bloom, bytes))
        if len(kept) == ROWS_PER_FILE or size >= BYTES_PER_FILE:
            yield _rows(store, kept)
            kept, size = [], 0
    if kept or not store.objects:
        yield _rows(store, kept)


def _label_fields(store: Store, keys: StoreKeys) -> Store:
    """Return a store of this version: fields named, and labels of keys where upstream looks for them."""
    indexes = tuple(
        replace(
            index,
            index=replace(
                index.index, field=field_name(index.index.columns, index.index.kind), key=_label(keys, index.index)
            ),
        )
        for index in store.indexes
    )
    partitions = tuple(
        (replace(column, field=PARTITION_PREFIX + column.column), values) for column, values in store.partitions
    )
    under: dict[str, list[str]] = {encode_key_id(keys.footer): [OBJECT, *(column.field for column, _ in partitions)]}
    for index in indexes:
        under.setdefault(index.index.key or "", []).extend(".".join(path) for path in leaf_paths_of(index.index))
    text = ";".join(f"{label}:{','.join(paths)}" for label, paths in under.items())
    labels = Labels(encode_key_id(keys.footer), text, "encrypted")
    return replace(store, version=VERSION, labels=labels, indexes=indexes, partitions=partitions)


def _label(keys: StoreKeys, index: Index) -> str:
    return encode_key_id(keys.of(index))


def _encryption(store: Store, schema: str, keys: StoreKeys, aad_prefix: bytes) -> FileEncryption:
    own: dict[str, DataKey] = {}
    columns: dict[ColumnPath, ColumnKey] = {}
    for index in store.indexes:
        master = keys.of(index.index)
        if master == keys.footer:
            continue
        if master not in own:
            own[master] = DataKey(*keys.maker.make(master, is_footer_key=False))
        columns |= dict.fromkeys(leaf_paths_of(index.index), own[master])
    return FileEncryption(
        DataKey(*keys.maker.make(keys.footer, is_footer_key=True)),
        columns=columns,
        default=FOOTER_KEY,
        aad_prefix=aad_prefix,
        key_values={SPARK_SCHEMA: schema},
    )


def _facts(path: Target) -> tuple[int, str]:
    footer = read_footer(path)
    return footer.size, (footer.aad_file_unique or b"").hex()
