"""Proves that a file has the content of the one that it was made from, by code that shares nothing with its writer's.

`ContentProof` compares what readers with the keys see, part by part.  `RewrapProof` compares a Parquet file of which
only the wrapping of data keys may have changed, and decrypts no page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.format import FORMATS, AnyVerification
from sparkcrypt.files.parquet.file.footer import Footer, KnownColumns, footer_of, read_footer
from sparkcrypt.files.parquet.file.modules import AadPrefix, FileCiphers, RetrieveKey
from sparkcrypt.files.parquet.file.schema import leaf_paths
from sparkcrypt.files.parquet.summary import FileSummary, summarise
from sparkcrypt.files.parquet.thrift.compact import BINARY, STRUCT, List, Struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnCryptoMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    KeyValue,
    RowGroup,
)
from sparkcrypt.files.parquet.verify.digest import OWN_KEYS_PREFIX
from sparkcrypt.files.parquet.verify.file import open_every_key
from sparkcrypt.files.source import Input, Source, open_source
from sparkcrypt.names import FileFormat
from sparkcrypt.schema import Path, join_dotted

COMPARED_BYTES = 4 << 20
_LEFT_OUT = (
    FileMetaData.encryption_algorithm.key,
    FileMetaData.footer_signing_key_metadata.key,
    FileMetaData.key_value_metadata.key,
    FileMetaData.row_groups.key,
)
Check: TypeAlias = Callable[[Any], None]
"""Called with the summary of a source's footer; raises if it is not the file that was listed."""


def _check_nothing(_: Any) -> None:
    """Accept any footer."""


@dataclass(slots=True)
class ContentProof:
    """A comparison of two files by digests of their parts, under a key that is never stored.

    The digests of a source are made before its rewrite begins, so that a file which changes meanwhile is noticed.

    Attributes:
        format: of both files.
        carried: dark columns that stay unchanged.
        purged: dark columns that nulls replace.
        before: the verification of the source, after `read_source`.
    """

    format: FileFormat
    carried: Collection[Path] = ()
    purged: Collection[Path] = ()
    before: AnyVerification | None = None
    _digest_key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)

    def read_source(
        self,
        source: Source,
        retrieve_key: RetrieveKey,
        *,
        aad_prefix: AadPrefix | None = None,
        check: Check = _check_nothing,
        will_encrypt: Collection[Path] | None = None,
    ) -> AnyVerification:
        """Verify and digest the source, as `verify_file` and `verify_orc`.

        Args:
            source: the source.
            retrieve_key: opens its keys.
            aad_prefix: as `read_footer`.
            check: called before anything but the footer is read.
            will_encrypt: as in `KnownColumns`.
        """
        known = KnownColumns(self.carried, purged=self.purged, will_encrypt=will_encrypt, check=check)
        self.before = FORMATS[self.format].verify(
            source, retrieve_key=retrieve_key, aad_prefix=aad_prefix, digest_key=self._digest_key, known=known
        )
        return self.before

    def compare(self, target: Source, retrieve_key: RetrieveKey, left_out: Collection[str] = ()) -> AnyVerification:
        """Verify the target, and check that its content is the source's.

        Args:
            target: the file that was made of the source.
            retrieve_key: opens its keys.
            left_out: parts that its rewrite may have changed, as `ParquetFormat.list_left_out`.

        Raises:
            VerificationError: it differs, or is not authentic.
            FormatError: it violates the specification.
        """
        digests = {} if self.before is None else self.before.digests
        equal = {part: digest for part, digest in digests.items() if part not in left_out}
        return FORMATS[self.format].verify(
            target,
            retrieve_key=retrieve_key,
            equal_to=equal,
            digest_key=self._digest_key,
            known=KnownColumns(self.carried, nulls=self.purged),
        )


@dataclass(frozen=True, slots=True)
class RewrapProof:
    """A comparison of a Parquet file with its source, from which only key metadata may differ.

    Attributes:
        source: the file that it was made from.
        retrieve_key: opens the source's keys.
        dark: columns whose keys cannot be opened; their key metadata must be unchanged too.
        keep: returns the key metadata that a column must have whose key is not opened, by its former one, else None.
        aad_prefix: of the source, as `read_footer`.
    """

    source: Source
    retrieve_key: RetrieveKey
    dark: Collection[Path] = ()
    keep: Callable[[Path, bytes], bytes | None] = lambda column, key_metadata: None
    aad_prefix: AadPrefix | None = None

    def compare(self, name: str, target: Source, retrieve_key: RetrieveKey) -> tuple[FileSummary, tuple[Path, ...]]:
        """Check a file, opening its keys; return its summary, and the columns whose keys were not opened.

        Args:
            name: the file's name in messages.
            target: the file.
            retrieve_key: opens its keys.

        Raises:
            VerificationError: something else differs, or a key does not open.
        """
        before = read_footer(self.source, retrieve_key=self.retrieve_key, aad_prefix=self.aad_prefix)
        kept = self._list_kept(before)
        try:
            with open_source(target) as file:
                ciphers = FileCiphers(file.name, retrieve_key)
                after = footer_of(file, ciphers)
                open_every_key(file, after, ciphers, {*self.dark, *kept})
        except FormatError as error:
            raise VerificationError(f"{name}: the rewrapped file cannot be read back: {error}") from error
        found = {column.path: column.key_metadata for column in after.columns or ()}
        for path, metadata in kept.items():
            if found.get(path) != metadata:
                raise VerificationError(
                    f"{name}: the key metadata of column {join_dotted(path)} is not what was ordered"
                )
        if before.metadata is None or after.metadata is None:
            raise VerificationError(f"{name}: a footer is not revealed, so it is not proven")
        if _strip_keys(before, before.metadata, self.dark) != _strip_keys(after, after.metadata, self.dark):
            raise VerificationError(f"{name}: its footer says something else than that of {before.file}")
        with open_source(self.source) as first, open_source(target) as second:
            if before.offset != after.offset or not _is_equal(first, second, before.offset):
                raise VerificationError(f"{name}: its data are not the bytes of {before.file}")
        return summarise(after), tuple(kept)

    def _list_kept(self, footer: Footer) -> Mapping[Path, bytes]:
        own = (column for column in footer.columns or () if column.own_key and column.path not in self.dark)
        kept = {column.path: self.keep(column.path, column.key_metadata or b"") for column in own}
        return {path: metadata for path, metadata in kept.items() if metadata is not None}


def _is_equal(source: Input, target: Input, length: int) -> bool:
    for start in range(0, length, COMPARED_BYTES):
        size = min(COMPARED_BYTES, length - start)
        if source.read(start, size, "the data") != target.read(start, size, "the data"):
            return False
    return True


def _strip_keys(
    footer: Footer, metadata: FileMetaData, dark: Collection[Path]
) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return a footer's content without its key metadata and without this package's own key-values.

    The key metadata of dark columns is included, in the form in which a file stores it inside.
    """
    rest = {key: value for key, value in metadata.struct.items() if key not in _LEFT_OUT}
    entries = metadata.struct.get(FileMetaData.key_value_metadata.key)
    kept = sorted(
        encode_struct(_sort_fields(entry))
        for entry in (entries if isinstance(entries, List) else ())
        if isinstance(entry, Struct) and not _is_own(entry)
    )
    paths = leaf_paths(metadata)
    materials = [column.key_metadata for column in footer.columns or ()] if footer.external_material else None
    groups = tuple(encode_struct(_group_less_keys(group, paths, dark, materials)) for group in metadata.row_groups)
    return encode_struct(_sort_fields(Struct(rest))), tuple(kept), groups


def _group_less_keys(
    group: RowGroup, paths: Sequence[Path], dark: Collection[Path], materials: Sequence[bytes | None] | None
) -> Struct:
    chunks = []
    for place, (chunk, path) in enumerate(zip(group.columns, paths, strict=True)):
        copy = Struct(chunk.struct)
        crypto = chunk.crypto_metadata
        if crypto is not None and crypto.column_key() is not None:
            if path not in dark:
                copy[ColumnChunk.crypto_metadata.key] = _own_key(Struct())
            elif materials is not None:
                copy[ColumnChunk.crypto_metadata.key] = _own_key(
                    Struct(
                        {
                            EncryptionWithColumnKey.path_in_schema.key: List(BINARY, [name.encode() for name in path]),
                            EncryptionWithColumnKey.key_metadata.key: materials[place] or b"",
                        }
                    )
                )
        chunks.append(_sort_fields(copy))
    return _sort_fields(Struct({**group.struct, RowGroup.columns.key: List(STRUCT, chunks)}))


def _own_key(content: Struct) -> Struct:
    return Struct({ColumnCryptoMetaData.encryption_with_column_key.key: content})


def _is_own(entry: Struct) -> bool:
    name = entry.get(KeyValue.key.key)
    return isinstance(name, bytes) and name.startswith(OWN_KEYS_PREFIX.encode())


def _sort_fields(struct: Struct) -> Struct:
    return Struct(sorted(struct.items()))
