"""Chooses the keys of a store: every index is under its column's key, everything else under the footer's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.parquet import FOOTER_KEY, DataKey, FileEncryption
from sparkcrypt.files.parquet.file.schema import Path as ColumnPath
from sparkcrypt.files.parquet.rewrite.encryption import ColumnKey
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.description import Index, Labels
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import OBJECT, PARTITION_PREFIX, VERSION, field_name
from sparkcrypt.skipping.format.table import leaf_paths_of


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The identity of a store: the table's UUID (None for a bare folder), and its generation, from 1 on."""

    table_uuid: str | None
    generation: int

    def aad_prefix(self, name: str) -> bytes:
        """Return the AAD prefix of a file of the store, which no data file and no other generation has."""
        return FileIdentity(self.table_uuid, f".index/{self.generation}", name).to_aad_prefix()


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of a store.

    Attributes:
        maker: makes data keys.
        footer: the master key of everything that has no key of its own.
        columns: column -> the master key of its indexes; untagged columns are left out.
    """

    maker: DataKeyMaker
    footer: str
    columns: Mapping[str, str]

    def of(self, index: Index) -> str:
        """Return the master key of an index."""
        own = {self.columns[column] for column in index.columns if column in self.columns}
        return own.pop() if len(own) == 1 else self.footer

    def make_footer_key(self) -> DataKey:
        """Return a new data key under the footer's master key."""
        return DataKey(*self.maker.make(self.footer, is_footer_key=True))


def label_fields(store: Store, keys: StoreKeys) -> Store:
    """Return a store of version 4, with names of fields, and with labels of keys where upstream reads them."""
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


def choose_encryption(store: Store, schema: str, keys: StoreKeys, aad_prefix: bytes) -> FileEncryption:
    """Return the encryption of one file of a store, with new data keys."""
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
        keys.make_footer_key(),
        columns=columns,
        default=FOOTER_KEY,
        aad_prefix=aad_prefix,
        key_values={SPARK_SCHEMA: schema},
    )


def _label(keys: StoreKeys, index: Index) -> str:
    return encode_key_id(keys.of(index))
