"""Reads structs, lists and maps from their own nulls and lengths and from the columns below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.orc.file.stripe import LENGTH
from sparkcrypt.files.orc.read.column import ColumnReader, Mask, PresentColumn, count_valid, pack_valid, spread
from sparkcrypt.files.orc.read.cursor import Positions
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.texts import check_lengths
from sparkcrypt.files.orc.read.types import ReadColumn

MOST_ELEMENTS = 1 << 24
"""The most elements of the lists or maps of one batch, all of which are held in memory."""
_ELEMENT_BYTES = 8


class StructColumn(PresentColumn):
    """A column of kind struct; its fields have values only for structs that are not null."""

    def __init__(self, streams: StripeStreams, column: ReadColumn, fields: Sequence[ColumnReader]) -> None:
        super().__init__(streams, column)
        self._fields = fields

    def seek(self, group: int, after: int) -> None:
        """Move to the start of a row group, in the fields too."""
        super().seek(group, after)
        for field in self._fields:
            field.seek(group, after)

    def seek_values(self, positions: Positions) -> None:
        """Do nothing: a struct has no stream but PRESENT."""

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return structs."""
        wanted = count_valid(count, valid)
        arrays = [field.read(wanted) for field in self._fields]
        if valid is not None:
            places = np.cumsum(valid) - 1
            taken = pa.array(places, pa.int64(), mask=~valid)
            arrays = [array.take(taken) if wanted else pa.nulls(count, array.type) for array in arrays]
        return pa.Array.from_buffers(self.column.type, count, [pack_valid(valid)], children=arrays)


class ListColumn(PresentColumn):
    """A column of kind list or map: lengths, and below it the elements, or the keys and values."""

    def __init__(self, streams: StripeStreams, column: ReadColumn, children: Sequence[ColumnReader]) -> None:
        super().__init__(streams, column)
        self._lengths = streams.integers(column, LENGTH, is_signed=False)
        self._children = children

    def seek(self, group: int, after: int) -> None:
        """Move to the start of a row group, in the children too."""
        super().seek(group, after)
        for child in self._children:
            child.seek(group, after)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group in the lengths."""
        self._lengths.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return lists or maps.

        Raises:
            FormatError: a length is negative.
            UnsupportedFileError: there are too many elements for one batch, or a key of a map is null.
        """
        lengths = self._lengths.read(count_valid(count, valid))
        total = check_lengths(lengths, self.column)
        if total > MOST_ELEMENTS:
            raise UnsupportedFileError(
                f"column {self.column.shown} has {total} elements in {count} rows; allowed: {MOST_ELEMENTS}; read it "
                "with Spark"
            )
        self.streams.count_bytes(total * _ELEMENT_BYTES * _count_leaves(self.column), self.column)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(spread(lengths, valid), out=offsets[1:], dtype=np.int32)
        buffers = [pack_valid(valid), pa.py_buffer(offsets.tobytes())]
        arrays = [child.read(total) for child in self._children]
        if self.column.kind == "map":
            if arrays[0].null_count:
                raise UnsupportedFileError(
                    f"column {self.column.shown} has a key that is null, which maps of Arrow do not have; leave the "
                    "column out, or read the file with Spark"
                )
            entries = pa.struct([self.column.type.key_field, self.column.type.item_field])
            arrays = [pa.Array.from_buffers(entries, total, [None], children=arrays)]
        return pa.Array.from_buffers(self.column.type, count, buffers, children=arrays)


def _count_leaves(column: ReadColumn) -> int:
    return sum(map(_count_leaves, column.children)) or 1
