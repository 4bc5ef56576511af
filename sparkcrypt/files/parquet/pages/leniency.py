"""Defines which violations of the specification are accepted and which are refused, for every way of reading.

Rewrites and verifications read pages with separate code, but both accept what this module, `page_facts` and
`chunk_pages` accept, so that every rewritten file can be verified.  An irregularity is accepted if the readers
(parquet-java and Arrow) read it alike, and the target can store correct values:

===================================================  ================================================================
irregularity                                         how it is treated
===================================================  ================================================================
footer: ``num_rows`` 0 over row groups with rows     as the sum of the row groups, which readers use; the target has
                                                     the sum.  Another count is refused: a row group may be missing
chunk: sizes without the dictionary page's header    as up to 100 bytes more, if the last page ends there (parquet-mr
                                                     before 1.2.9; also files without a writer, which may be its)
chunk: ``dictionary_page_offset`` 0, or behind its   as no dictionary: pages begin at ``data_page_offset``
data
chunk, plaintext: ``data_page_offset`` is not that   replaced in the target by that of the first data page
of its first data page (DuckDB before 0.10.1)
chunk: ``file_path`` empty                           as in this file; any other ``file_path`` is refused
chunk: ``file_offset``, ``index_page_offset``,       not read; re-created in the target
total sizes of plaintext row groups
chunk: Bloom filter at offset 0                      as no Bloom filter
chunk, plaintext: indexes that cannot be read, or    as neither column nor offset index: readers that filter by them
do not fit its pages                                 would lose rows
row group: no ``ordinal``                            as its position in the footer
row groups, plaintext: an ``ordinal`` twice          as their positions in the footer, since no module is bound to one
V2 page of repeated values: as many rows as values   as an unknown number of rows (Arrow before 12 wrote this)
no ``created_by``, CRC, statistics, encoding_stats   accepted
empty row groups, chunks without pages, no columns   accepted
===================================================  ================================================================

All other contradictions are refused: counts of values, nulls and rows, pages that end elsewhere than their chunk,
wrong CRCs, overlapping parts, a chunk of another type than its leaf, an encrypted chunk's offsets and indexes, a Bloom
filter of another length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.parquet.pages.chunk import chunk_range
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
)
from sparkcrypt.files.source import Input, naming

MOST_MISSING_BYTES = 100
"""The most bytes that a dictionary page's header has; Arrow reads as many bytes more."""
_COUNTS_ALL = (1, 2, 9)
_HEADER_BYTES = 64 * 1024
_WRITER = re.compile(r"parquet-mr(?: version (\d+)\.(\d+)\.(\d+))?")


def read_row_total(metadata: FileMetaData) -> int:
    """Return a footer's number of rows, or the sum of its row groups' if that is 0."""
    return metadata.num_rows or sum(max(0, row_group.num_rows) for row_group in metadata.row_groups)


def row_count(metadata: FileMetaData) -> int:
    """Return a file's number of rows, after checking the footer's count against its row groups'.

    Raises:
        FormatError: the counts of the row groups and the footer differ, or one is negative.
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
    """Yield row groups with the ordinal used in their modules' AADs: the stored one, else their position.

    Raises:
        FormatError: two row groups of an encrypted file have the same one, so pages of one would pass for the other's.
    """
    ordinals: set[int] = set()
    for index, row_group in enumerate(metadata.row_groups):
        ordinal = row_group.ordinal if encrypted else index
        ordinal = index if ordinal is None else ordinal
        if ordinal in ordinals:
            raise FormatError(f"row group {index} has ordinal {ordinal}, as another has; expected each once")
        ordinals.add(ordinal)
        yield row_group, ordinal


def check_in_this_file(chunk: ColumnChunk, name: object) -> None:
    """Check that a chunk is in the same file as its footer.

    Raises:
        FormatError: it is in another file.
    """
    if chunk.file_path:
        raise FormatError(f"{name} is in another file; expected it in this one")


def check_type(metadata: ColumnMetaData, leaf: int, name: object) -> None:
    """Check that a chunk has the physical type of its leaf.

    Raises:
        FormatError: it has another one.
    """
    if metadata.type != leaf:
        raise FormatError(f"{name} has type {metadata.type}; expected {leaf}, as its leaf of the schema has")


def check_redacted(clear: ColumnMetaData, sealed: ColumnMetaData, what: object) -> None:
    """Check that an encrypted column's metadata in a plaintext footer is a subset of its encrypted metadata.

    Raises:
        FormatError: a field differs; readers without the column's key would rely on it.
    """
    differing = [str(key >> 4) for key, value in clear.struct.items() if sealed.struct.get(key) != value]
    if differing:
        raise FormatError(
            f"{what} has metadata in clear that differs from the encrypted in fields {', '.join(differing)}; expected "
            "the same, or nothing"
        )


def check_row_group_size(row_group: RowGroup, found: int, what: str) -> None:
    """Check the size of an encrypted file's row group, which readers use to plan if columns are hidden.

    Raises:
        FormatError: the row group has a size that is not that of its chunks.
    """
    size = row_group.total_compressed_size
    if size is not None and size != found:
        raise FormatError(f"{what} announces {size} compressed bytes; expected {found}, as its chunks have")


def whole_chunk(file: Input, metadata: ColumnMetaData, limit: int, writer: str | None, name: object) -> ColumnMetaData:
    """Return the metadata of a plaintext chunk with sizes corrected to include all of its pages.

    Args:
        file: the file of the chunk.
        metadata: of the chunk, as stored in the footer.
        limit: the offset of the footer.
        writer: the footer's ``created_by``.
        name: its ``str`` is the chunk's name in messages.

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
    """Return the number of bytes by which the last page of a chunk with a dictionary exceeds the chunk's end."""
    at, values_left, dictionary = start, values, False
    while at < end and values_left > 0:
        try:
            struct, length = decode_struct(file.read(at, min(_HEADER_BYTES, most - at), "a page header"), origin=at)
            header = PageHeader(struct)
            size, kind = header.compressed_page_size, header.type
            v1, v2 = header.data_page_header, header.data_page_header_v2
        except FormatError:
            return 0  # the error is raised again when the pages are read
        if size < 0 or (at == start) != (kind == PageType.DICTIONARY_PAGE):
            return 0
        dictionary = True
        values_left -= v1.num_values if v1 is not None else v2.num_values if v2 is not None else 0
        at += length + size
    return at - end if dictionary and end < at <= most else 0


class PageFacts(NamedTuple):
    """The checked content of a page header; ``values`` is 0 for a dictionary page, ``rows`` is None unless it is V2."""

    view: PageHeader
    type: int
    size: int
    values: int
    rows: int | None
    levels: int


_TYPE = PageHeader.type.key
_UNCOMPRESSED = PageHeader.uncompressed_page_size.key
_COMPRESSED = PageHeader.compressed_page_size.key
_V1 = PageHeader.data_page_header.key
_V1_VALUES = DataPageHeader.num_values.key


def page_facts(struct: Struct, what: object, first: bool) -> PageFacts:
    """Return the checked content of a page header.

    Args:
        struct: the header.
        what: its ``str`` is the name of the header, or of its chunk, in messages.
        first: whether it is the chunk's first page.

    Raises:
        FormatError: sizes or counts are missing or impossible, or a page of this type is not allowed there.
        UnsupportedFileError: it is an index page, which has no module type.
    """
    kind, size = struct.get(_TYPE), struct.get(_COMPRESSED)
    if not isinstance(size, int) or size < 0 or not _is_count(struct.get(_UNCOMPRESSED)):
        raise FormatError(f"{what} has page sizes that are missing or negative; expected 0 or more")
    view = PageHeader(struct)
    if kind == 0:
        v1 = struct.get(_V1)
        values = v1.get(_V1_VALUES) if isinstance(v1, Struct) else None
        if not isinstance(values, int) or values < 0:
            raise FormatError(f"{what} has a data page without data_page_header or a count in it; expected both")
        return PageFacts(view, 0, size, values, None, 0)
    if kind == PageType.DATA_PAGE_V2:
        return _v2_facts(view, size, what)
    if kind == PageType.DICTIONARY_PAGE and first:
        with naming(what):
            dictionary = view.dictionary_page_header
            counted = dictionary is not None and dictionary.num_values >= 0
        if not counted:
            raise FormatError(f"{what} has a dictionary page without a count of its values; expected one")
        return PageFacts(view, PageType.DICTIONARY_PAGE, size, 0, None, 0)
    if kind == PageType.INDEX_PAGE:
        raise UnsupportedFileError(
            f"{what} has an INDEX_PAGE, for which encryption has no module type; expected none: use the Spark engine"
        )
    raise FormatError(f"{what} has a page of type {kind!r}; expected {_ALLOWED}")


_ALLOWED = "DATA_PAGE (0), DATA_PAGE_V2 (3), or as the first one DICTIONARY_PAGE (2)"


def _v2_facts(view: PageHeader, size: int, what: object) -> PageFacts:
    v2 = view.data_page_header_v2
    if v2 is None:
        raise FormatError(f"{what} has a V2 data page without data_page_header_v2; expected one")
    with naming(what):
        repetition, definition = v2.repetition_levels_byte_length, v2.definition_levels_byte_length
        values, nulls, rows = v2.num_values, v2.num_nulls, v2.num_rows
    if repetition < 0 or definition < 0 or repetition + definition > size:
        raise FormatError(
            f"{what} has {repetition} and {definition} bytes of levels in a page of {size}; expected no more than that"
        )
    if not (0 <= nulls <= values and 0 <= rows <= values):
        raise FormatError(f"{what} has {values} values, {nulls} nulls, {rows} rows; expected no more than its values")
    return PageFacts(view, PageType.DATA_PAGE_V2, size, values, rows, repetition + definition)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0
