"""What every column of a stripe is read by: nulls first, then the values that are none; and columns that are null."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkcrypt.orc.file.stripe import PRESENT
from sparkcrypt.orc.read.cursor import Positions
from sparkcrypt.orc.read.stripe_streams import StripeStreams
from sparkcrypt.orc.read.types import ReadColumn

Mask = npt.NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)


class ColumnReader(Protocol):
    """Reads the values of one column of a stripe, in order from a row group on."""

    def seek(self, group: int, after: int) -> None:
        """Go to a row group.

        Args:
            group: its number.
            after: number of the row group after the last that will be read.

        Raises:
            FormatError: the row index leads nowhere.
            UnsupportedFileError: there is no row index.
        """

    def read(self, count: int) -> pa.Array:
        """Return the next values.

        Raises:
            FormatError: the streams end before, or hold what is no such value.
            UnsupportedFileError: values do not fit into Arrow's type.
        """


class NullColumn:
    """A column that this reader gets nulls of; nothing of it is read."""

    def __init__(self, column: ReadColumn) -> None:
        self._type = column.type

    def seek(self, group: int, after: int) -> None:
        """Do nothing: all values are null."""

    def read(self, count: int) -> pa.Array:
        """Return nulls."""
        return pa.nulls(count, self._type)


class PresentColumn(ABC):
    """A column with its stream PRESENT; the kinds of columns say what its values are.

    Args:
        streams: of the stripe.
        column: the column.
    """

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        self.streams = streams
        self.column = column
        self._present = streams.bits(column, PRESENT) if streams.has(column, PRESENT) else None

    def seek(self, group: int, after: int) -> None:
        """Go to a row group, as `ColumnReader.seek`."""
        positions = self.streams.positions(self.column, group, after)
        if self._present is not None:
            self._present.seek(positions)
        self.seek_values(positions)

    def read(self, count: int) -> pa.Array:
        """Return the next values, as `ColumnReader.read`."""
        if self._present is None:
            return self.read_values(count, None)
        valid = self._present.read(count)
        return self.read_values(count, None if valid.all() else valid)

    @abstractmethod
    def seek_values(self, positions: Positions) -> None:
        """Go to a row group in all streams but PRESENT, whose positions were taken."""

    @abstractmethod
    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return values.

        Args:
            count: how many.
            valid: which are not null; None: all.
        """


def count_valid(count: int, valid: Mask | None) -> int:
    """Return how many values stand in the streams."""
    return count if valid is None else int(np.count_nonzero(valid))


def spread(values: npt.NDArray[_Scalar], valid: Mask | None) -> npt.NDArray[_Scalar]:
    """Return values, one a row, in their places, with zeros in those of nulls."""
    if valid is None:
        return values
    found = np.zeros((len(valid), *values.shape[1:]), values.dtype)
    found[valid] = values
    return found


def pack_valid(valid: Mask | None) -> pa.Buffer | None:
    """Return Arrow's bitmap of validity."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def make_flat(kind: pa.DataType, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Return an array of values that are not null, in the type's own layout."""
    placed = spread(values, valid)
    return pa.Array.from_buffers(kind, len(placed), [pack_valid(valid), pa.py_buffer(placed.tobytes())])
