"""Checks that a column chunk holds only nulls, which replace a column whose key no longer exists."""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.parquet.file.read_ahead import Window
from sparkcrypt.files.parquet.pages.chunk import chunk_range
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, PageType
from sparkcrypt.files.parquet.verify.chunk import ChunkPlace, FileCheck
from sparkcrypt.files.parquet.verify.pages import read_pages, read_plain_pages

_LENGTH_BYTES = 4


def check_nulls(shared: FileCheck, place: ChunkPlace, meta_data: ColumnMetaData) -> None:
    """Check that every page of a chunk is one uncompressed run of definition level 0, followed by no values.

    Args:
        shared: the check of its file.
        place: the chunk's place; its counts have been checked.
        meta_data: of the chunk.

    Raises:
        VerificationError: a page holds anything else.
    """
    window = Window(shared.file, *chunk_range(meta_data, shared.layout.limit, place.name))
    key = place.key
    for page in read_plain_pages(window, place.name) if key is None else read_pages(key, window):
        runs = meta_data.codec == 0 and page.type == PageType.DATA_PAGE and not len(page.levels)
        if not runs or not _is_run_of_nulls(bytes(page.body), page.values):
            raise VerificationError(
                f"{place.name} holds more than nulls; it was to be replaced by nulls, so keep the source"
            )


def _is_run_of_nulls(body: bytes, values: int) -> bool:
    """Return whether a V1 page's bytes are only definition levels, with level 0 for each value."""
    size = int.from_bytes(body[:_LENGTH_BYTES], "little")
    levels = body[_LENGTH_BYTES:]
    if size != len(levels) or not levels.endswith(b"\0"):
        return False
    header, shift = 0, 0
    *groups, _ = levels
    for number, group in enumerate(groups):
        if (group < 0x80) != (number == len(groups) - 1):
            return False
        header |= (group & 0x7F) << shift
        shift += 7
    return header == values << 1
