"""The column chunks of a source, opened for a rewrite, and chunks of nulls that replace some of them.

Makes column chunks of nulls for columns whose keys no longer exist: sources with one page without values.  Only
optional top-level columns can be replaced: the levels of a nested column define which groups exist, and they are in
pages that cannot be opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sparkcrypt.errors import ConfigError, FormatError, UnsupportedFileError
from sparkcrypt.files.parquet.file.footer import MAGIC_BYTES, PLAINTEXT_MAGIC, ColumnCrypto, Footer, known_aad
from sparkcrypt.files.parquet.file.modules import FileCiphers, ModuleType
from sparkcrypt.files.parquet.file.schema import LeafLevels, Path, leaf_levels, leaf_types
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, PartName, chunk_range
from sparkcrypt.files.parquet.pages.leniency import (
    check_in_this_file,
    check_redacted,
    check_type,
    order_row_groups,
    whole_chunk,
)
from sparkcrypt.files.parquet.rewrite.page_stream import Bytes, EncryptedPages, PlainPages
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, List, Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    PageHeader,
    PageType,
    Statistics,
)
from sparkcrypt.files.source import Input, open_source
from sparkcrypt.schema import join_dotted

_INDEX_FIELDS = {
    ModuleType.COLUMN_INDEX: (
        *(ColumnChunk.column_index_offset.key, ColumnChunk.column_index_length.key),
        "column index",
    ),
    ModuleType.OFFSET_INDEX: (
        *(ColumnChunk.offset_index_offset.key, ColumnChunk.offset_index_length.key),
        "offset index",
    ),
}
"""The fields of a chunk that have an index's offset and length, and the index's name in messages."""


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """A readable column chunk.

    ``part`` is its name in messages; ``metadata`` is the footer's own, and must not be changed; ``key`` is None if
    the chunk is not encrypted; ``limit`` is the offset of the footer; ``rows`` is the row group's number of rows, each
    of which may have any number of values if the leaf is ``repeated``.
    """

    file: Input = field(repr=False)
    limit: int
    path: Path
    part: PartName
    chunk: ColumnChunk = field(repr=False)
    metadata: ColumnMetaData = field(repr=False)
    key: ChunkKey | None = field(repr=False)
    rows: int
    repeated: bool

    @property
    def name(self) -> str:
        """The name of the chunk in messages."""
        return str(self.part)

    def range(self) -> tuple[int, int]:
        """Return the start and end of its pages.

        Raises:
            FormatError: they are not inside the file's data.
        """
        return chunk_range(self.metadata, self.limit, self.part)

    def page_source(self) -> EncryptedPages | PlainPages:
        """Return a reader of its pages."""
        start, end = self.range()
        if self.key is None:
            return PlainPages(self.file, start, end, self.part)
        return EncryptedPages(self.file, start, end, self.key)

    def index(self, module: ModuleType) -> bytes | None:
        """Return its column index or offset index as serialised, or None if it has none.

        Raises:
            FormatError: it has an offset without a length or the reverse, or they are not inside the file's data.
            VerificationError: it does not authenticate.
        """
        offset_key, length_key, kind = _INDEX_FIELDS[module]
        offset, length = self.chunk.struct.get(offset_key), self.chunk.struct.get(length_key)
        if offset is None and length is None:
            return None
        what = PartName(self.part.dotted, self.part.row_group, kind)
        if not isinstance(offset, int) or not isinstance(length, int):
            raise FormatError(f"{what} has an offset or a length; expected both")
        if offset < MAGIC_BYTES or length < 0 or offset + length > self.limit:
            raise FormatError(
                f"{what} is {length} bytes at offset {offset}; expected inside {MAGIC_BYTES} to {self.limit}"
            )
        data = self.file.read(offset, length, what)
        return data if self.key is None else self.key.open(data, module)

    def bloom_filter(self, end: int | None = None) -> tuple[bytes, bytes] | None:
        """Return the header and the bit set of its Bloom filter, or None if it has none.

        Args:
            end: the offset of the next part of the file, which it must not exceed.

        Raises:
            FormatError: it is not inside the file's data, overlaps another part, or the lengths do not fit.
            VerificationError: it does not authenticate.
        """
        offset = self.metadata.bloom_filter_offset
        if not offset:
            return None
        what = f"the Bloom filter of {self.name}"
        if not MAGIC_BYTES <= offset <= self.limit:
            raise FormatError(f"{what} is at offset {offset}; expected inside {MAGIC_BYTES} to {self.limit}")
        data = Bytes(self.file, offset, self.limit if end is None else end)
        if self.key is None:
            header = data.struct(what)
            size = BloomFilterHeader(header).num_bytes
            found = encode_struct(header), bytes(data.take(size, what))
            self._check_filter_length(data.position - offset, what)
            return found
        serialised = self.key.open(data.module(what), ModuleType.BLOOM_FILTER_HEADER)
        bits = self.key.open(data.module(what), ModuleType.BLOOM_FILTER_BITSET)
        header, end = decode_struct(serialised)
        if BloomFilterHeader(header).num_bytes != len(bits):
            raise FormatError(f"{what} has {len(bits)} bytes; expected {BloomFilterHeader(header).num_bytes}")
        self._check_filter_length(data.position - offset, what)
        return serialised[:end], bits

    def _check_filter_length(self, found: int, what: str) -> None:
        length = self.metadata.bloom_filter_length
        if length is not None and found != length:
            raise FormatError(f"{what} takes {found} bytes; expected {length}")


def source_chunks(
    file: Input, footer: Footer, ciphers: FileCiphers | None, dark: Collection[Path] = ()
) -> Iterator[Iterator[SourceChunk]]:
    """Yield for each row group its column chunks in schema order.

    Args:
        file: the file.
        footer: its decrypted footer.
        ciphers: of its keys; None for a plaintext file.
        dark: columns that are left out, since their keys cannot be opened.

    Raises:
        FormatError: two row groups have the same ordinal, so that pages of one would pass for the other's; or a chunk
            is in another file, or its metadata is missing or does not fit.
        VerificationError: encrypted metadata does not authenticate.
        ConfigError: a column is encrypted and no key is given.
    """
    assert footer.metadata is not None and footer.columns is not None  # noqa: S101 - the caller has read the footer
    types, levels = leaf_types(footer.metadata), leaf_levels(footer.metadata)
    leaves = [_leaf(*known) for known in zip(footer.columns, types, levels, strict=True)]
    for number, (group, ordinal) in enumerate(order_row_groups(footer.metadata, encrypted=footer.mode != "plaintext")):
        yield _chunks(file, footer, ciphers, leaves, _Group(group.columns, group.num_rows, number, ordinal), dark)


def column_chunks(file: Input, footer: Footer, ciphers: FileCiphers | None, column: int) -> Iterator[SourceChunk]:
    """Yield one leaf's chunk of each row group; no other leaf's key is requested.

    Args:
        file: the file.
        footer: its decrypted footer.
        ciphers: of its keys; None for a plaintext file.
        column: the leaf's index in the schema.

    Raises:
        FormatError, VerificationError, ConfigError: as `source_chunks`, of this leaf.
    """
    assert footer.metadata is not None and footer.columns is not None  # noqa: S101 - the caller has read the footer
    leaf = _leaf(footer.columns[column], leaf_types(footer.metadata)[column], leaf_levels(footer.metadata)[column])
    for number, (group, ordinal) in enumerate(order_row_groups(footer.metadata, encrypted=footer.mode != "plaintext")):
        found = _Group(group.columns, group.num_rows, number, ordinal)
        check_in_this_file(found.columns[column], PartName(leaf[1], number))
        yield _open_chunk(file, footer, ciphers, leaf, found, column)


class _Group(NamedTuple):
    """The chunks of a row group, its rows, its index in the footer, and the ordinal in its modules' AADs."""

    columns: Sequence[ColumnChunk]
    rows: int
    number: int
    ordinal: int


_Leaf: TypeAlias = tuple[ColumnCrypto, str, int, bool]
"""A leaf: its encryption, its path as text, its physical type, whether it is repeated."""


def _leaf(column: ColumnCrypto, kind: int, level: LeafLevels) -> _Leaf:
    return column, join_dotted(column.path), kind, level.repetition > 0


def _chunks(
    file: Input,
    footer: Footer,
    ciphers: FileCiphers | None,
    leaves: list[_Leaf],
    group: _Group,
    dark: Collection[Path],
) -> Iterator[SourceChunk]:
    for column, (chunk, leaf) in enumerate(zip(group.columns, leaves, strict=True)):
        check_in_this_file(chunk, PartName(leaf[1], group.number))
        if leaf[0].path not in dark:
            yield _open_chunk(file, footer, ciphers, leaf, group, column)


def _open_chunk(
    file: Input, footer: Footer, ciphers: FileCiphers | None, leaf: _Leaf, group: _Group, column: int
) -> SourceChunk:
    """Open the metadata of one leaf's chunk in a row group, and check that it fits the leaf."""
    crypto, path, kind, repeated = leaf
    chunk, name = group.columns[column], PartName(path, group.number)
    key = _key(footer, ciphers, crypto, group.ordinal, column) if crypto.encrypted else None
    metadata = _metadata(file, footer, chunk, key, name)
    check_type(metadata, kind, name)
    return SourceChunk(file, footer.offset, crypto.path, name, chunk, metadata, key, group.rows, repeated)


def _key(footer: Footer, ciphers: FileCiphers | None, crypto: ColumnCrypto, ordinal: int, column: int) -> ChunkKey:
    if ciphers is None or footer.algorithm is None:
        raise ConfigError(f"column {join_dotted(crypto.path)} is encrypted and no key is given; pass retrieve_key")
    owner = (crypto.path, crypto.key_metadata) if crypto.own_key else (None, footer.footer_key_metadata)
    return ChunkKey(ciphers.cipher(*owner), known_aad(footer), footer.algorithm, crypto.path, ordinal, column)


def _metadata(file: Input, footer: Footer, chunk: ColumnChunk, key: ChunkKey | None, name: PartName) -> ColumnMetaData:
    """Return the chunk's metadata, from its encrypted form if it has one, since the form in clear is then redacted."""
    framed, clear = chunk.encrypted_column_metadata, chunk.meta_data
    if key is not None and framed is not None:
        sealed = ColumnMetaData(decode_struct(key.open(framed, ModuleType.COLUMN_META_DATA))[0])
        if clear is not None:
            check_redacted(clear, sealed, name)
        return sealed
    if clear is None:
        raise FormatError(f"{name} has no metadata; expected it in clear or encrypted")
    if key is None:
        writer = None if footer.metadata is None else footer.metadata.created_by
        clear = whole_chunk(file, clear, footer.offset, writer, name)
    return clear


_PLAIN, _RLE, _UNCOMPRESSED = 0, 3, 0


def refuse_not_nullable(path: Path, levels: LeafLevels) -> None:
    """Refuse a column that cannot be replaced by nulls.

    Raises:
        UnsupportedFileError: the column, which is named, is required or part of a nested column.
    """
    if len(path) > 1 or levels.repetition:
        raise UnsupportedFileError(
            f"column {join_dotted(path)} is part of a nested column, so it cannot be replaced by nulls alone; allowed: "
            "columns of the top level; leave the file out, or drop the column from the table"
        )
    if not levels.definition:
        raise UnsupportedFileError(
            f"column {join_dotted(path)} is required, so it cannot be replaced by nulls; allowed: optional columns; "
            "leave the file out, or drop the column from the table"
        )


def make_null_chunk(stack: ExitStack, path: Path, kind: int, group: int, rows: int) -> SourceChunk:
    """Return a chunk of as many nulls as a row group has rows.

    Args:
        stack: closes the chunk's bytes.
        path: of an optional top-level column.
        kind: the column's physical type.
        group: the index of the row group in the footer.
        rows: its number of rows.
    """
    page = _make_page(rows) if rows else b""
    described = Struct(
        {
            ColumnMetaData.type.key: kind,
            ColumnMetaData.encodings.key: List(I32, [_PLAIN, _RLE]),
            ColumnMetaData.path_in_schema.key: List(BINARY, [path[0].encode()]),
            ColumnMetaData.codec.key: _UNCOMPRESSED,
            ColumnMetaData.num_values.key: rows,
            ColumnMetaData.total_uncompressed_size.key: len(page),
            ColumnMetaData.total_compressed_size.key: len(page),
            ColumnMetaData.data_page_offset.key: MAGIC_BYTES if page else 0,
            ColumnMetaData.statistics.key: Struct({Statistics.null_count.key: rows}),
        }
    )
    content = PLAINTEXT_MAGIC + page
    chunk = ColumnChunk(Struct({ColumnChunk.file_offset.key: MAGIC_BYTES, ColumnChunk.meta_data.key: described}))
    return SourceChunk(
        file=stack.enter_context(open_source(content)),
        limit=len(content),
        path=path,
        part=PartName(join_dotted(path), group),
        chunk=chunk,
        metadata=ColumnMetaData(described),
        key=None,
        rows=rows,
        repeated=False,
    )


def _make_page(rows: int) -> bytes:
    """Return a V1 data page of nulls: one run of definition level 0, and no values."""
    run = _run(rows)
    body = len(run).to_bytes(4, "little") + run
    data = Struct(
        {
            DataPageHeader.num_values.key: rows,
            DataPageHeader.encoding.key: _PLAIN,
            DataPageHeader.definition_level_encoding.key: _RLE,
            DataPageHeader.repetition_level_encoding.key: _RLE,
        }
    )
    header = Struct(
        {
            PageHeader.type.key: int(PageType.DATA_PAGE),
            PageHeader.uncompressed_page_size.key: len(body),
            PageHeader.compressed_page_size.key: len(body),
            PageHeader.data_page_header.key: data,
        }
    )
    return encode_struct(header) + body


def _run(rows: int) -> bytes:
    """Return one RLE run of the hybrid encoding: definition level 0 for each row."""
    return _varint(rows << 1) + b"\0"


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
