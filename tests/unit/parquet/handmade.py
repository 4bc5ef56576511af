"""Plaintext Parquet files put together page by page, for what no writer at hand writes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, STRUCT, List, Struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
    SchemaElement,
)

PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
Change = Callable[[Struct], object]


@dataclass(frozen=True)
class MadePage:
    """A page: its header and the bytes after it."""

    header: Struct
    body: bytes

    @property
    def wire(self) -> bytes:
        """Its bytes in a file."""
        return encode_struct(self.header) + self.body

    @property
    def values(self) -> int:
        """How many values it announces, if it is a data page."""
        header = PageHeader(self.header)
        inner = header.data_page_header or header.data_page_header_v2
        return 0 if inner is None else inner.num_values


def v1_header(page: MadePage) -> Struct:
    """Return a copy of what the header of a V1 data page holds."""
    found = PageHeader(page.header).data_page_header
    assert found is not None
    return Struct(found.struct)


def _page(kind: int, body: bytes, crc: bool, field: int, inner: Struct) -> MadePage:
    header = Struct(
        {
            PageHeader.type.key: kind,
            PageHeader.uncompressed_page_size.key: len(body),
            PageHeader.compressed_page_size.key: len(body),
        }
    )
    if crc:
        found = zlib.crc32(body)
        header[PageHeader.crc.key] = found - (1 << 32) if found >> 31 else found
    header[field] = inner
    return MadePage(header, body)


def data_page(body: bytes = b"\0" * 8, *, values: int = 1, encoding: int = PLAIN, crc: bool = False) -> MadePage:
    """Make a V1 data page."""
    inner = Struct(
        {
            DataPageHeader.num_values.key: values,
            DataPageHeader.encoding.key: encoding,
            DataPageHeader.definition_level_encoding.key: RLE,
            DataPageHeader.repetition_level_encoding.key: RLE,
        }
    )
    return _page(PageType.DATA_PAGE, body, crc, PageHeader.data_page_header.key, inner)


def v2_page(body: bytes = b"\0" * 8, *, values: int = 1, levels: tuple[int, int] = (0, 0), nulls: int = 0) -> MadePage:
    """Make a V2 data page whose first bytes are repetition and definition levels of these lengths."""
    inner = Struct(
        {
            DataPageHeaderV2.num_values.key: values,
            DataPageHeaderV2.num_nulls.key: nulls,
            DataPageHeaderV2.num_rows.key: values,
            DataPageHeaderV2.encoding.key: PLAIN,
            DataPageHeaderV2.definition_levels_byte_length.key: levels[1],
            DataPageHeaderV2.repetition_levels_byte_length.key: levels[0],
        }
    )
    return _page(PageType.DATA_PAGE_V2, body, False, PageHeader.data_page_header_v2.key, inner)


def dictionary_page(body: bytes = b"\0" * 16) -> MadePage:
    """Make a dictionary page."""
    inner = Struct({DictionaryPageHeader.num_values.key: 2, DictionaryPageHeader.encoding.key: PLAIN})
    return _page(PageType.DICTIONARY_PAGE, body, False, PageHeader.dictionary_page_header.key, inner)


def index_page() -> MadePage:
    """Make an index page, which no encrypted file can have."""
    return _page(PageType.INDEX_PAGE, b"index", False, PageHeader.index_page_header.key, Struct())


def make_file(row_groups: Sequence[Sequence[Sequence[MadePage]]], change: Change | None = None) -> bytes:
    """Make a file of required INT64 columns.

    Args:
        row_groups: of each its columns, of each its pages.
        change: changes the metadata of each chunk.
    """
    out, groups, columns, rows = bytearray(b"PAR1"), List(STRUCT), 0, 0
    for chunks in row_groups:
        made, columns, count = List(STRUCT), len(chunks), 0
        for number, pages in enumerate(chunks):
            start = len(out)
            first_data = start + len(pages[0].wire) if pages and pages[0].header[0x15] == 2 else start
            out += b"".join(page.wire for page in pages)
            count = sum(page.values for page in pages)
            metadata = Struct(
                {
                    ColumnMetaData.type.key: 2,
                    ColumnMetaData.encodings.key: List(I32, [PLAIN]),
                    ColumnMetaData.path_in_schema.key: List(BINARY, [b"c%d" % number]),
                    ColumnMetaData.codec.key: 0,
                    ColumnMetaData.num_values.key: count,
                    ColumnMetaData.total_uncompressed_size.key: len(out) - start,
                    ColumnMetaData.total_compressed_size.key: len(out) - start,
                    ColumnMetaData.data_page_offset.key: first_data,
                }
            )
            if first_data != start:
                metadata[ColumnMetaData.dictionary_page_offset.key] = start
            if change is not None:
                change(metadata)
            made.append(Struct({ColumnChunk.file_offset.key: 0, ColumnChunk.meta_data.key: metadata}))
        rows += count
        groups.append(
            Struct({RowGroup.columns.key: made, RowGroup.total_byte_size.key: 0, RowGroup.num_rows.key: count})
        )
    footer = encode_struct(
        Struct(
            {
                FileMetaData.version.key: 1,
                FileMetaData.schema.key: _schema(columns),
                FileMetaData.num_rows.key: rows,
                FileMetaData.row_groups.key: groups,
            }
        )
    )
    return bytes(out + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _schema(columns: int) -> List:
    leaves = [
        Struct(
            {
                SchemaElement.type.key: 2,
                SchemaElement.repetition_type.key: 0,
                SchemaElement.name.key: b"c%d" % number,
            }
        )
        for number in range(columns)
    ]
    return List(STRUCT, [Struct({SchemaElement.name.key: b"root", SchemaElement.num_children.key: columns}), *leaves])
