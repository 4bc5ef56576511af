"""Reads from a footer how each column is encrypted, and checks that row groups, chunks and schema agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.files.parquet.file.schema import PATHS_SIZE, Path, leaf_paths
from sparkcrypt.files.parquet.thrift.compact import BINARY, List, Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, EncryptionWithColumnKey, FileMetaData
from sparkcrypt.schema import join_dotted


@dataclass(frozen=True, slots=True)
class ColumnCrypto:
    """The encryption of a column.

    ``encrypted`` is None if the file has no row group, and so no data of the column.  ``own_key`` is False for the
    footer's key; ``key_metadata`` belongs to the column's own key and may be None or empty even then.
    """

    path: Path
    encrypted: bool | None
    own_key: bool = False
    key_metadata: bytes | None = None


def column_crypto(metadata: FileMetaData, file_bytes: int) -> tuple[ColumnCrypto, ...]:
    """Return the encryption of each leaf column, in schema order.

    Args:
        metadata: the footer.
        file_bytes: the file's size, which bounds the paths of all leaves together.

    Raises:
        FormatError: the paths are too long, a row group's chunks are not the schema's leaves in order, a chunk
            contradicts itself, or a column is encrypted differently in two row groups.
    """
    paths = leaf_paths(metadata, max_size=max(PATHS_SIZE, file_bytes))
    columns: tuple[ColumnCrypto, ...] | None = None
    wires = _wires(paths)
    for index, row_group in enumerate(metadata.row_groups):
        chunks = row_group.columns
        if len(chunks) != len(paths):
            raise FormatError(
                f"row group {index} has {len(chunks)} column chunks; expected {len(paths)}, one for each leaf"
            )
        found = tuple([_chunk_crypto(*entry) for entry in zip(chunks, paths, wires, strict=True)])
        if columns is not None and found != columns:
            raise FormatError(
                f"row group {index}: {_difference(columns, found)} is encrypted unlike in row group 0; expected alike"
            )
        columns = found
    return tuple([ColumnCrypto(path, None) for path in paths]) if columns is None else columns


def _wires(paths: tuple[Path, ...]) -> list[List]:
    """Return the paths as a file stores them; leaves below the same name share its bytes object."""
    raw: dict[str, bytes] = {}
    for path in paths:
        for name in path:
            if name not in raw:
                raw[name] = name.encode()
    return [List(BINARY, [raw[name] for name in path]) for path in paths]


def check_dark(columns: tuple[ColumnCrypto, ...], dark: Collection[Path]) -> None:
    """Check that columns given as dark have keys of their own: no other column may be left unopened.

    Args:
        columns: the columns of the file.
        dark: the paths of columns whose keys can no longer be opened.

    Raises:
        ConfigError: one is not in the file, is in plaintext or under the footer's key, or occurs twice.
    """
    counts = Counter(column.path for column in columns)
    own = {column.path for column in columns if column.own_key and counts[column.path] == 1}
    wrong = sorted(map(join_dotted, set(dark) - own))
    if wrong:
        allowed = ", ".join(sorted(map(join_dotted, own))) or "none"
        raise ConfigError(f"dark columns {', '.join(wrong)}; allowed: columns with a key of their own, here {allowed}")


def marks_encryption(metadata: FileMetaData) -> Iterator[str]:
    """Yield the parts of a footer, other than the algorithm, that only an encrypted file has."""
    if metadata.footer_signing_key_metadata is not None:
        yield "footer_signing_key_metadata"
    for index, row_group in enumerate(metadata.row_groups):
        for ordinal, chunk in enumerate(row_group.columns):
            if not _ENCRYPTED_KEYS.isdisjoint(chunk.struct):
                yield f"encryption of column chunk {ordinal} in row group {index}"


_ENCRYPTED_KEYS = frozenset({ColumnChunk.crypto_metadata.key, ColumnChunk.encrypted_column_metadata.key})
_META_DATA_KEY = ColumnChunk.meta_data.key
_PATH_KEY = ColumnMetaData.path_in_schema.key


def _chunk_crypto(chunk: ColumnChunk, path: Path, wire: List) -> ColumnCrypto:
    fields = chunk.struct
    meta_data = fields.get(_META_DATA_KEY)
    if isinstance(meta_data, Struct):
        _same_path(meta_data.get(_PATH_KEY, wire), wire, path)
    if _ENCRYPTED_KEYS.isdisjoint(fields):
        if meta_data is None:
            raise FormatError(f"column {join_dotted(path)} has neither meta_data nor crypto_metadata; expected one")
        return ColumnCrypto(path, False)
    crypto = chunk.crypto_metadata
    if crypto is None:
        raise FormatError(f"column {join_dotted(path)} has encrypted_column_metadata; expected crypto_metadata with it")
    own = crypto.column_key()
    if own is None:
        return ColumnCrypto(path, True)
    _same_path(own.struct.get(EncryptionWithColumnKey.path_in_schema.key), wire, path)
    if chunk.encrypted_column_metadata is None:
        raise FormatError(
            f"column {join_dotted(path)} has a key of its own; expected encrypted_column_metadata with it"
        )
    return ColumnCrypto(path, True, True, own.key_metadata)


def _same_path(found: object, wire: List, path: Path) -> None:
    if found != wire:
        raise FormatError(
            f"a column chunk stands where {join_dotted(path)} belongs; expected path_in_schema to be the leaf's"
        )


def _difference(before: tuple[ColumnCrypto, ...], after: tuple[ColumnCrypto, ...]) -> str:
    paths = [join_dotted(entry.path) for entry, other in zip(before, after, strict=True) if entry != other]
    return f"column {paths[0]}"
