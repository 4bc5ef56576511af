"""What is taken of a file though the specification has it otherwise, and what is refused: for every way of reading.

Rewrites and verifications read pages by code of their own, and go by this module, `page_facts` and `chunk_pages` in
what they accept, so that what is rewritten can also be verified.  Taken is what the readers (parquet-java and Arrow)
read without a difference, where the target can say what is true:

===================================================  ================================================================
what a file says                                     what is made of it
===================================================  ================================================================
footer: ``num_rows`` 0 over row groups with rows     the sum of the row groups', which readers go by; the target says
                                                     so.  Any other sum is refused: a row group may be missing
chunk: sizes without the dictionary page's header    up to 100 bytes more, if the last page ends there (parquet-mr
                                                     before 1.2.9; files that name no writer may be of it)
chunk: ``dictionary_page_offset`` 0, or behind its   there is none: pages begin at ``data_page_offset``
data
chunk, plaintext: ``data_page_offset`` elsewhere     where the first data page is; the target says so
than at its first data page (DuckDB before 0.10.1)
chunk: ``file_path`` empty                           in this file; any other is refused
chunk: ``file_offset``, ``index_page_offset``,       not read; the target's are made anew
total sizes of plaintext row groups
chunk: Bloom filter at offset 0                      there is none
chunk, plaintext: indexes that cannot be read, or    there are none, neither column nor offset index: readers that
do not fit its pages                                 filter by them would lose rows
row group: no ``ordinal``                            its place in the footer
row groups, plaintext: an ``ordinal`` twice          their places in the footer, since no module is bound to one
V2 page of repeated values: as many rows as values   unknown how many (Arrow before 12 said so)
no ``created_by``, CRC, statistics, encoding_stats   as it is
empty row groups, chunks without pages, no columns   as it is
===================================================  ================================================================

Everything else that contradicts itself is refused: counts of values, nulls and rows, pages that end elsewhere than
their chunk, CRCs, parts over one another, an encrypted chunk's offsets and indexes, a Bloom filter of another length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkcrypt.errors import FormatError
from sparkcrypt.parquet.file.source import Input
from sparkcrypt.parquet.pages.chunk import chunk_range
from sparkcrypt.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, PageHeader, PageType, RowGroup

MOST_MISSING_BYTES = 100
"""No dictionary page's header is longer; Arrow reads as many bytes more."""
_COUNTS_ALL = (1, 2, 9)
_HEADER_BYTES = 64 * 1024
_WRITER = re.compile(r"parquet-mr(?: version (\d+)\.(\d+)\.(\d+))?")


def told_rows(metadata: FileMetaData) -> int:
    """Return the rows that a footer tells of: its own count, or those of its row groups where that is 0."""
    return metadata.num_rows or sum(max(0, row_group.num_rows) for row_group in metadata.row_groups)


def row_count(metadata: FileMetaData) -> int:
    """Return the rows of a file whose footer agrees with its row groups.

    Raises:
        FormatError: row groups and footer announce different ones, or a count is negative.
    """
    rows = 0
    for index, row_group in enumerate(metadata.row_groups):
        if row_group.num_rows < 0:
            raise FormatError(f"row group {index} announces {row_group.num_rows} rows; expected a count")
        rows += row_group.num_rows
    if metadata.num_rows not in (rows, 0):
        raise FormatError(f"row groups hold {rows} rows; expected {metadata.num_rows}, as the footer says")
    return rows


def order_row_groups(metadata: FileMetaData, *, encrypted: bool) -> Iterator[tuple[RowGroup, int]]:
    """Yield row groups with the ordinal that their modules carry: their own, else their place.

    Raises:
        FormatError: two of an encrypted file have the same, so that pages of one would pass for the other's.
    """
    seen: set[int] = set()
    for index, row_group in enumerate(metadata.row_groups):
        ordinal = row_group.ordinal if encrypted else index
        ordinal = index if ordinal is None else ordinal
        if ordinal in seen:
            raise FormatError(f"row group {index} has ordinal {ordinal}, as another has; expected each once")
        seen.add(ordinal)
        yield row_group, ordinal


def check_in_this_file(chunk: ColumnChunk, name: object) -> None:
    """Check that a chunk is in the file whose footer speaks of it.

    Raises:
        FormatError: it is in another.
    """
    if chunk.file_path:
        raise FormatError(f"{name} is in another file; expected it in this one")


def check_redacted(clear: ColumnMetaData, sealed: ColumnMetaData, what: object) -> None:
    """Check that what a plaintext footer says of an encrypted column is what its encrypted metadata says, or less.

    Raises:
        FormatError: it says something else, which readers without the column's key would go by.
    """
    differing = [str(key >> 4) for key, value in clear.struct.items() if sealed.struct.get(key) != value]
    if differing:
        raise FormatError(
            f"{what} has metadata in clear that differs from the encrypted in fields {', '.join(differing)}; expected "
            "the same, or nothing"
        )


def check_row_group_size(row_group: RowGroup, found: int, what: str) -> None:
    """Check the size of an encrypted file's row group, by which readers of hidden columns plan.

    Raises:
        FormatError: it is announced and is not that of the chunks.
    """
    size = row_group.total_compressed_size
    if size is not None and size != found:
        raise FormatError(f"{what} announces {size} compressed bytes; expected {found}, as its chunks have")


def whole_chunk(file: Input, metadata: ColumnMetaData, limit: int, writer: str | None, name: object) -> ColumnMetaData:
    """Return the metadata of a plaintext chunk with sizes that hold all of its pages.

    Args:
        file: that the chunk is in.
        metadata: of the chunk, as the footer has it.
        limit: where the footer begins.
        writer: the footer's ``created_by``.
        name: names the chunk in messages, by its text.

    Raises:
        FormatError: as `chunk_range`.
    """
    if not _may_leave_out_headers(writer):
        return metadata
    start, end = chunk_range(metadata, limit, name)
    missing = _missing_bytes(file, start, end, min(limit, end + MOST_MISSING_BYTES), metadata.num_values)
    if not missing:
        return metadata
    whole = Struct(metadata.struct)
    for size in (ColumnMetaData.total_compressed_size.key, ColumnMetaData.total_uncompressed_size.key):
        counted = whole[size]
        if isinstance(counted, int):
            whole[size] = counted + missing
    return ColumnMetaData(whole)


def _may_leave_out_headers(writer: str | None) -> bool:
    if not writer:
        return True
    found = _WRITER.match(writer)
    return found is not None and (found[1] is None or tuple(map(int, found.groups())) < _COUNTS_ALL)


def _missing_bytes(file: Input, start: int, end: int, most: int, values: int) -> int:
    """Return by how many bytes the last page of a chunk that begins with a dictionary reaches over its end."""
    at, left, dictionary = start, values, False
    while at < end and left > 0:
        try:
            struct, length = decode_struct(file.read(at, min(_HEADER_BYTES, most - at), "a page header"), origin=at)
            header = PageHeader(struct)
            size, kind = header.compressed_page_size, header.type
            v1, v2 = header.data_page_header, header.data_page_header_v2
        except FormatError:
            return 0  # which is told where its pages are read
        if size < 0 or (at == start) != (kind == PageType.DICTIONARY_PAGE):
            return 0
        dictionary = True
        left -= v1.num_values if v1 is not None else v2.num_values if v2 is not None else 0
        at += length + size
    return at - end if dictionary and end < at <= most else 0
