"""Authenticates every encrypted module of a file, and says what nothing in it authenticates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.parquet.columns import ColumnCrypto
from sparkcrypt.parquet.footer import ENCRYPTED_MAGIC, MAGIC_BYTES, PLAINTEXT_MAGIC, Footer, Mode, footer_of, known_aad
from sparkcrypt.parquet.keys import FileCiphers, RetrieveKey, VerifyAad
from sparkcrypt.parquet.metadata import (
    Algorithm,
    BloomFilterHeader,
    ColumnChunk,
    ColumnIndex,
    ColumnMetaData,
    FileMetaData,
    OffsetIndex,
    RowGroup,
)
from sparkcrypt.parquet.modules import FILE_UNIQUE_BYTES, ModuleType
from sparkcrypt.parquet.pages import ChunkKey, Unauthenticated, Window, chunk_range, read_pages
from sparkcrypt.parquet.source import Input, Source, naming, open_source
from sparkcrypt.parquet.thrift import decode_struct
from sparkcrypt.schema import dotted


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked of a file.

    ``authenticated`` is ``all`` when the footer and every module of every encrypted column is what a holder of the keys
    wrote; otherwise ``not_authenticated`` says what is not.  ``plaintext_columns`` are outside of that: nothing of
    their pages is authenticated, as in any Parquet file.  ``modules`` counts encrypted modules, the footer included.
    """

    file: str
    authenticated: Literal["all", "partial"]
    not_authenticated: tuple[str, ...]
    plaintext_columns: tuple[tuple[str, ...], ...]
    footer: Mode
    algorithm: Algorithm | None
    modules: int
    rows: int
    row_groups: int

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "file": self.file,
            "authenticated": self.authenticated,
            "not_authenticated": list(self.not_authenticated),
            "plaintext_columns": [dotted(path) for path in self.plaintext_columns],
            "footer": self.footer,
            "algorithm": self.algorithm,
            "modules": self.modules,
            "rows": self.rows,
            "row_groups": self.row_groups,
        }


def verify_file(
    source: Source,
    *,
    retrieve_key: RetrieveKey | None = None,
    aad_prefix: bytes | None = None,
    verify_aad: VerifyAad | None = None,
) -> Verification:
    """Authenticate a whole file: footer, column metadata, page headers, pages, indexes and Bloom filters.

    Args:
        source: as `read_footer`.
        retrieve_key: asked once for every key of the file; not needed for a file that is not encrypted.
        aad_prefix: the AAD prefix, for files that do not store it.
        verify_aad: called with the AAD prefix before any key is asked for; raises when it is not the expected one.

    Raises:
        FormatError: the file is against the specification.
        VerificationError: something does not authenticate, or the file-unique is not 8 bytes.
        ConfigError: the file is encrypted and ``retrieve_key``, or a prefix that it does not store, is missing.
    """
    with open_source(source) as file:
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        footer = footer_of(file, ciphers, aad_prefix, verify_aad)
        with naming(file.name):
            return _Check(file, footer, ciphers).run()


class _Check:
    """One verification under way."""

    def __init__(self, file: Input, footer: Footer, ciphers: FileCiphers | None) -> None:
        self.file = file
        self.footer = footer
        self.ciphers = ciphers
        self.modules = 0
        self.gaps: dict[str, None] = {}

    def run(self) -> Verification:
        footer = self.footer
        metadata, columns = footer.metadata, footer.columns
        self.check_start()
        if footer.mode != "plaintext":
            self.check_identity()
        if metadata is None or columns is None:
            raise ConfigError(f"{footer.file}: the footer is encrypted and no key is given; pass retrieve_key")
        self.check_rows(metadata)
        for row_group, ordinal in _ordered(metadata):
            for column, (chunk, crypto) in enumerate(zip(row_group.columns, columns, strict=True)):
                self.check_chunk(chunk, crypto, ordinal, column)
        plaintext = tuple(crypto.path for crypto in columns if crypto.encrypted is False)
        return Verification(
            footer.file,
            "partial" if self.gaps else "all",
            tuple(self.gaps),
            plaintext,
            footer.mode,
            footer.algorithm,
            self.modules,
            metadata.num_rows,
            len(metadata.row_groups),
        )

    def check_start(self) -> None:
        expected = ENCRYPTED_MAGIC if self.footer.mode == "encrypted" else PLAINTEXT_MAGIC
        if self.file.read(0, MAGIC_BYTES, "the start of the file") != expected:
            raise FormatError(f"offset 0: expected {expected.decode()}, with which the file ends")

    def check_identity(self) -> None:
        if self.ciphers is None:
            raise ConfigError(f"{self.footer.file}: the file is encrypted and no key is given; pass retrieve_key")
        unique = self.footer.aad_file_unique
        if unique is None or len(unique) != FILE_UNIQUE_BYTES:
            found = "missing" if unique is None else f"{len(unique)} bytes"
            raise VerificationError(
                f"the file-unique is {found}; expected {FILE_UNIQUE_BYTES}, since a prefix could pass for part of it"
            )
        self.modules += 1

    def check_rows(self, metadata: FileMetaData) -> None:
        rows = sum(row_group.num_rows for row_group in metadata.row_groups)
        if rows != metadata.num_rows:
            raise FormatError(f"row groups hold {rows} rows; expected {metadata.num_rows}, as the footer says")
        if self.footer.mode == "plaintext":
            self.gaps["the file is not encrypted"] = None

    def check_chunk(self, chunk: ColumnChunk, crypto: ColumnCrypto, row_group: int, column: int) -> None:
        what = f"column {dotted(crypto.path)} in row group {row_group}"
        if chunk.file_path is not None:
            raise FormatError(f"{what} is in another file; expected it in this one")
        if not crypto.encrypted or self.ciphers is None or self.footer.algorithm is None:
            if chunk.meta_data is not None:
                chunk_range(chunk.meta_data, self.footer.offset, what)
            return
        owner = (crypto.path, crypto.key_metadata) if crypto.own_key else (None, self.footer.footer_key_metadata)
        key = ChunkKey(
            self.ciphers.cipher(*owner), known_aad(self.footer), self.footer.algorithm, crypto.path, row_group, column
        )
        meta_data = self.open_meta_data(chunk, key)
        self.check_pages(meta_data, key, what)
        self.check_index(key, ModuleType.COLUMN_INDEX, chunk.column_index_offset, chunk.column_index_length)
        self.check_index(key, ModuleType.OFFSET_INDEX, chunk.offset_index_offset, chunk.offset_index_length)
        if meta_data.bloom_filter_offset is not None:
            self.check_bloom_filter(key, meta_data.bloom_filter_offset)

    def open_meta_data(self, chunk: ColumnChunk, key: ChunkKey) -> ColumnMetaData:
        framed = chunk.encrypted_column_metadata
        if framed is None:  # under the footer key, and so part of the authenticated footer
            if chunk.meta_data is None:
                raise FormatError(
                    f"{key.name(ModuleType.COLUMN_META_DATA)} is missing; expected it in clear or encrypted"
                )
            return chunk.meta_data
        self.modules += 1
        return ColumnMetaData(decode_struct(key.open(framed, ModuleType.COLUMN_META_DATA))[0])

    def check_pages(self, meta_data: ColumnMetaData, key: ChunkKey, what: str) -> None:
        start, end = chunk_range(meta_data, self.footer.offset, what)
        values = 0
        for page in read_pages(key, Window(self.file, start, end)):
            self.modules += page.modules
            values += page.values
            if page.unauthenticated is not None:
                self.gaps[_gap(page.unauthenticated, key)] = None
        if values != meta_data.num_values:
            raise FormatError(f"{what}: pages hold {values} values; expected {meta_data.num_values}")

    def check_index(self, key: ChunkKey, module: ModuleType, offset: int | None, length: int | None) -> None:
        if offset is None and length is None:
            return
        if offset is None or length is None:
            raise FormatError(f"{key.name(module)} has an offset or a length; expected both")
        self.check_inside(offset, length, key.name(module))
        struct, _ = decode_struct(key.open(self.file.read(offset, length, key.name(module)), module))
        _ = OffsetIndex(struct).page_locations if module is ModuleType.OFFSET_INDEX else ColumnIndex(struct).null_pages
        self.modules += 1

    def check_bloom_filter(self, key: ChunkKey, offset: int) -> None:
        self.check_inside(offset, 0, key.name(ModuleType.BLOOM_FILTER_HEADER))
        window = Window(self.file, offset, self.footer.offset)
        opened = []
        for module in (ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET):
            opened.append(key.open(window.take_module(key.name(module)), module))
            self.modules += 1
        size = BloomFilterHeader(decode_struct(opened[0])[0]).num_bytes
        if size != len(opened[1]):
            raise FormatError(f"{key.name(ModuleType.BLOOM_FILTER_BITSET)} has {len(opened[1])} bytes; expected {size}")

    def check_inside(self, offset: int, length: int, what: str) -> None:
        if offset < MAGIC_BYTES or length < 0 or offset + length > self.footer.offset:
            raise FormatError(
                f"{what} is {length} bytes at offset {offset}; expected inside {MAGIC_BYTES} to {self.footer.offset}"
            )


def _ordered(metadata: FileMetaData) -> Iterator[tuple[RowGroup, int]]:
    """Yield row groups with the ordinal that their modules carry.

    Raises:
        FormatError: two have the same.
    """
    seen: set[int] = set()
    for index, row_group in enumerate(metadata.row_groups):
        ordinal = index if row_group.ordinal is None else row_group.ordinal
        if ordinal in seen:
            raise FormatError(f"row group {index} has ordinal {ordinal}, as another has; expected each once")
        seen.add(ordinal)
        yield row_group, ordinal


def _gap(gap: Unauthenticated, key: ChunkKey) -> str:
    if gap == "page":
        return f"pages of column {dotted(key.path)}: AES_GCM_CTR_V1 does not authenticate them"
    return f"levels of column {dotted(key.path)}: its V2 pages keep them in clear, unauthenticated"
