"""The base of all column readers: reads which values are null, then the others; and a reader of all-null columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkcrypt.files.orc.file.stripe import PRESENT
from sparkcrypt.files.orc.read.cursor import Positions
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.types import ReadColumn

Mask = npt.NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)


class ColumnReader(Protocol):
    """A reader of the values of one column of a stripe, in order from a row group on."""

    def seek(self, group: int, after: int) -> None:
        """Move to the start of a row group.

        Args:
            group: its number.
            after: number of the row group after the last that will be read.

        Raises:
            FormatError: the row index has an invalid position.
            UnsupportedFileError: there is no row index.
        """

    def read(self, count: int) -> pa.Array:
        """Return the next values.

        Raises:
            FormatError: the streams end early, or have an invalid value.
            UnsupportedFileError: values do not fit into Arrow's type.
        """


class NullColumn:
    """A column of which this reader sees only nulls; none of its data are read."""

    def __init__(self, column: ReadColumn) -> None:
        self._type = column.type

    def seek(self, group: int, after: int) -> None:
        """Do nothing: all values are null."""

    def read(self, count: int) -> pa.Array:
        """Return nulls."""
        return pa.nulls(count, self._type)


class PresentColumn(ABC):
    """A column with its stream PRESENT; subclasses read the values.

    Args:
        streams: of the stripe.
        column: the column.
    """

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        self.streams = streams
        self.column = column
        self._present = streams.bits(column, PRESENT) if streams.has(column, PRESENT) else None

    def seek(self, group: int, after: int) -> None:
        """Move to the start of a row group, as `ColumnReader.seek`."""
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
        """Move to a row group in all streams but PRESENT, whose positions were taken already."""

    @abstractmethod
    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return the next values.

        Args:
            count: the number of values, including nulls.
            valid: which values are not null; None if all are.
        """


def count_valid(count: int, valid: Mask | None) -> int:
    """Return the number of values in the streams, which have none for nulls."""
    return count if valid is None else int(np.count_nonzero(valid))


def spread(values: npt.NDArray[_Scalar], valid: Mask | None) -> npt.NDArray[_Scalar]:
    """Return values at their rows' positions, with zeros for nulls."""
    if valid is None:
        return values
    found = np.zeros((len(valid), *values.shape[1:]), values.dtype)
    found[valid] = values
    return found


def pack_valid(valid: Mask | None) -> pa.Buffer | None:
    """Return Arrow's validity bitmap."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def make_flat(kind: pa.DataType, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Return an array from the values that are not null, which are in the type's memory layout."""
    placed = spread(values, valid)
    return pa.Array.from_buffers(kind, len(placed), [pack_valid(valid), pa.py_buffer(placed.tobytes())])
