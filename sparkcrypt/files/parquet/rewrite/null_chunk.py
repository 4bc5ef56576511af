"""Makes column chunks of nulls for columns whose keys no longer exist: sources with one page without values.

Only optional top-level columns can be replaced: the levels of a nested column define which groups exist, and they are
in pages that cannot be opened.
"""

from __future__ import annotations

from contextlib import ExitStack

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.parquet.file.footer import MAGIC_BYTES, PLAINTEXT_MAGIC
from sparkcrypt.files.parquet.file.schema import LeafLevels, Path
from sparkcrypt.files.parquet.pages.claimed_regions import PartName
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, List, Struct
from sparkcrypt.files.parquet.thrift.encode import encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    PageHeader,
    PageType,
    Statistics,
)
from sparkcrypt.files.source import open_source
from sparkcrypt.schema import join_dotted

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
