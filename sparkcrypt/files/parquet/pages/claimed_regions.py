"""Collects the regions that column chunks claim, before a page is read, so that no bytes are read or written twice."""

from __future__ import annotations

from typing import NamedTuple

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file.layout import Layout
from sparkcrypt.files.parquet.pages.chunk import chunk_range
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData

SHOWN_CHARACTERS = 200


class PartName(NamedTuple):
    """The name of a column chunk, or of a part of it, in messages; its text is only built if there is a message.

    ``dotted`` is the column's path, which all chunks of the column share.
    """

    dotted: str
    row_group: int
    part: str = ""

    def __str__(self) -> str:
        column = self.dotted
        if len(column) > SHOWN_CHARACTERS:
            column = column[: SHOWN_CHARACTERS - 1] + "…"
        chunk = f"column {column} in row group {self.row_group}"
        return f"the {self.part} of {chunk}" if self.part else chunk


def claim_regions(layout: Layout, chunk: ColumnChunk, metadata: ColumnMetaData, name: PartName) -> None:
    """Add a chunk's pages, its indexes and the first byte of its Bloom filter, whose end is unknown, to a layout.

    Raises:
        FormatError: one of them is not inside the file's data, or an index has only an offset or only a length.
    """
    layout.add(*chunk_range(metadata, layout.limit, name), name)
    indexes = (
        ("column index", chunk.column_index_offset, chunk.column_index_length),
        ("offset index", chunk.offset_index_offset, chunk.offset_index_length),
    )
    for part, offset, length in indexes:
        if (offset is None) != (length is None):
            raise FormatError(f"{name._replace(part=part)} has an offset or a length; expected both")
        if offset is not None and length is not None:
            layout.add(offset, offset + length, name._replace(part=part))
    if offset := metadata.bloom_filter_offset:
        layout.add(offset, offset + 1, name._replace(part="Bloom filter"))
