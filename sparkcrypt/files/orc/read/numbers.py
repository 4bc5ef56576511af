"""Reads booleans, integers, floats and dates."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkcrypt.calendars import FIRST_DAY, FIRST_GREGORIAN_DAY, gregorian_days
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.orc.file.stripe import DATA
from sparkcrypt.files.orc.read.column import Mask, PresentColumn, count_valid, make_flat, pack_valid, spread
from sparkcrypt.files.orc.read.cursor import Positions
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.types import ReadColumn

_DTYPES: dict[str, np.dtype[Any]] = {
    "short": np.dtype("<i2"),
    "int": np.dtype("<i4"),
    "long": np.dtype("<i8"),
    "date": np.dtype("<i4"),
}
_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}


class BooleanColumn(PresentColumn):
    """A column of kind boolean."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._bits = streams.bits(column, DATA)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._bits.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return booleans."""
        bits = spread(self._bits.read(count_valid(count, valid)), valid)
        return pa.Array.from_buffers(
            pa.bool_(), count, [pack_valid(valid), pa.py_buffer(np.packbits(bits, bitorder="little").tobytes())]
        )


class ByteColumn(PresentColumn):
    """A column of kind byte."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._bytes = streams.bytes(column, DATA)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._bytes.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return integers of 8 bits."""
        values = np.frombuffer(self._bytes.read(count_valid(count, valid)), np.int8)
        return make_flat(self.column.type, values, valid)


class IntegerColumn(PresentColumn):
    """A column of kind short, int, long or date."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._integers = streams.integers(column, DATA, is_signed=True)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._integers.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return integers, the low bits of the kind's width as in ORC's readers.

        Dates are days since 1970-01-01, in the calendar of Spark.

        Raises:
            UnsupportedFileError: a date is before the year 1, in a calendar that only Spark converts there.
        """
        values = self._integers.read(count_valid(count, valid)).astype(_DTYPES[self.column.kind])
        if self.column.kind == "date" and len(values) and values.min() < FIRST_GREGORIAN_DAY:
            values = self._as_spark_reads(values)
        return make_flat(self.column.type, values, valid)

    def _as_spark_reads(self, days: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not self.streams.is_in_old_calendar:
            return days
        if days.min() < FIRST_DAY:
            raise UnsupportedFileError(
                f"column {self.column.shown} has a date before the year 1 in the calendar of ORC's Java writer, which "
                "only Spark converts; leave the column out, or read the file with Spark"
            )
        return gregorian_days(days)


class FloatColumn(PresentColumn):
    """A column of kind float or double."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._cursor = streams.cursor(column, DATA)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._cursor.seek(*positions.take_place())

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return floating-point numbers of 32 or 64 bits."""
        dtype = _FLOATS[self.column.kind]
        raw = self._cursor.take(count_valid(count, valid) * dtype.itemsize)
        return make_flat(self.column.type, np.frombuffer(raw, dtype), valid)
