"""What a column chunk claims of its file, taken before a page is read: so nothing can be read or written twice."""

from __future__ import annotations

from typing import NamedTuple

from sparkcrypt.errors import FormatError
from sparkcrypt.parquet.file.layout import Layout
from sparkcrypt.parquet.pages.chunk import chunk_range
from sparkcrypt.parquet.thrift.metadata import ColumnChunk, ColumnMetaData

SHOWN_CHARACTERS = 200


class PartName(NamedTuple):
    """What messages call a column chunk or a part of it; text is made of it only when there is a message.

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
    """Add to a layout where a chunk's pages and indexes lie and where its Bloom filter, whose end is not known, begins.

    Raises:
        FormatError: one of them is not inside the file's data, or an index has half a place.
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
