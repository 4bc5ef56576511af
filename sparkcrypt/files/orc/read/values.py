"""Reads the values of columns, by their types, into Arrow's arrays.

Reads strings and bytes, stored directly or as references to a dictionary of the stripe.  Source: ORC specification v1,
"String, Char, and VarChar Columns", "Binary Columns".

Reads timestamps: seconds since 2015 in the time zone of the stripe's writer, and nanoseconds.  A ``timestamp`` is the
local time in the writer's time zone, whatever the reader's; a ``timestamp_instant`` is a point in time.  Source: ORC
specification v1, "Timestamp Columns"; ``TimestampColumnReader`` of ORC's C++ reader.

Reads decimals: integers of any length, each with a scale.  Source: ORC specification v1, "Decimal Columns".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.calendars import FIRST_DAY, FIRST_GREGORIAN_DAY, gregorian_days
from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.stripe import DATA, DICTIONARY_DATA, LENGTH, PRESENT, SECONDARY
from sparkcrypt.files.orc.read.runs import IntegerRuns, Integers, Positions, StreamCursor, unzigzag, unzigzag_all
from sparkcrypt.files.orc.read.stripe_streams import MOST_DIGITS, ReadColumn, StripeStreams

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


MOST_BYTES = (1 << 31) - 1
"""The most bytes of the texts of one batch: Arrow's offsets have 32 bits."""


class DirectColumn(PresentColumn):
    """A column of kind string, varchar, char or binary whose values are stored one after another."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._bytes = streams.cursor(column, DATA)
        self._lengths = streams.integers(column, LENGTH, is_signed=False)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._bytes.seek(*positions.take_place())
        self._lengths.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return texts."""
        lengths = self._lengths.read(count_valid(count, valid))
        total = check_lengths(lengths, self.column)
        self.streams.count_bytes(total, self.column)
        return _make_texts(self.column, self._bytes.take(total), lengths, valid)


class DictionaryColumn(PresentColumn):
    """A column of texts that are references to a dictionary, which is read when a value is first requested."""

    def __init__(self, streams: StripeStreams, column: ReadColumn, size: int) -> None:
        super().__init__(streams, column)
        self._size = size
        self._numbers = streams.integers(column, DATA, is_signed=False)
        self._known: pa.Array | None = None

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._numbers.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return texts.

        Raises:
            FormatError: a reference is not to a value of the dictionary.
        """
        numbers = self._numbers.read(count_valid(count, valid))
        if not len(numbers):
            return pa.nulls(count, self.column.type)
        if numbers.min() < 0 or numbers.max() >= self._size:
            raise FormatError(
                f"column {self.column.shown} has a value that its dictionary lacks; expected 0 to {self._size - 1}"
            )
        dictionary = self._dictionary()
        lengths = np.diff(np.frombuffer(dictionary.buffers()[1], np.int32)).astype(np.int64)
        self.streams.count_bytes(check_lengths(lengths[numbers], self.column), self.column)
        places = spread(numbers, valid)
        return dictionary.take(pa.array(places, pa.int64(), mask=None if valid is None else ~valid))

    def _dictionary(self) -> pa.Array:
        if self._known is None:
            lengths = self.streams.integers(self.column, LENGTH, is_signed=False).read(self._size)
            total = check_lengths(lengths, self.column)
            self.streams.count_bytes(total, self.column, is_kept=True)
            content = self.streams.cursor(self.column, DICTIONARY_DATA).take(total)
            self._known = _make_texts(self.column, content, lengths, None)
        return self._known


def check_lengths(lengths: Integers, column: ReadColumn) -> int:
    """Return the sum of lengths, after checking them.

    Raises:
        FormatError: one is negative.
        UnsupportedFileError: the sum exceeds the size of an Arrow array.
    """
    if len(lengths) and lengths.min() < 0:
        raise FormatError(f"column {column.shown} has a negative length; expected 0 or more")
    total = float(lengths.sum(dtype=np.float64))
    if total > MOST_BYTES:
        raise UnsupportedFileError(
            f"column {column.shown} has more than {MOST_BYTES} bytes or elements in one batch; read it with Spark"
        )
    return int(lengths.sum())


def _make_texts(column: ReadColumn, content: bytes, lengths: Integers, valid: Mask | None) -> pa.Array:
    offsets = np.zeros(len(lengths if valid is None else valid) + 1, np.int32)
    np.cumsum(spread(lengths, valid), out=offsets[1:], dtype=np.int32)
    buffers = [pack_valid(valid), pa.py_buffer(offsets.tobytes()), pa.py_buffer(content)]
    found = pa.Array.from_buffers(column.type, len(offsets) - 1, buffers)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FormatError(f"column {column.shown} has a text that is no UTF-8; expected such texts") from error
    return found


EPOCH_SECONDS = 1_420_070_400
"""2015-01-01 00:00:00 local time, in seconds since 1970-01-01 00:00:00 local time."""
UTC = frozenset(("", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z"))
"""Names of UTC; a stripe without a time zone uses UTC."""
LAST_LISTED = 2_114_380_800
"""2037-01-01 in UTC, until which time zone files list every change of the offset."""
_QUARTER_SECONDS = 900
"""UTC offsets change at full quarters of an hour in UTC."""
_NANOS = 1_000_000_000
_MOST_SECONDS = (1 << 63) // _NANOS - 1
"""The range of timestamps in nanoseconds: from 1677 to 2262."""
_MILLISECOND = 1_000_000
_SCALES = np.array([1, *(10 ** (zeros + 1) for zeros in range(1, 8))], np.int64)
"""Factors, by the lowest three bits of encoded nanoseconds: the number of zeros removed less one, or 0 for none."""


def find_offsets(instants: Integers, timezone: str) -> Integers:
    """Return a time zone's UTC offsets, in seconds, at instants in seconds since 1970, up to the year 9999.

    Arrow uses the changes that time zone files list, which end in 2037, but not the rule for the years after.

    Raises:
        ZoneInfoNotFoundError: the time zone is unknown.
    """
    zone = ZoneInfo(timezone)
    quarters, places = np.unique(instants // _QUARTER_SECONDS, return_inverse=True)
    found = [datetime.fromtimestamp(quarter * _QUARTER_SECONDS, zone).utcoffset() for quarter in quarters.tolist()]
    seconds = [0 if offset is None else int(offset.total_seconds()) for offset in found]
    return np.array(seconds, np.int64)[places]


class TimestampColumn(PresentColumn):
    """A column of kind timestamp or timestamp_instant."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._seconds = streams.integers(column, DATA, is_signed=True)
        self._nanos = streams.integers(column, SECONDARY, is_signed=False)
        self._timezone = streams.timezone if column.kind == "timestamp" else ""

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._seconds.seek(positions)
        self._nanos.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return timestamps in nanoseconds.

        Raises:
            FormatError: a number of nanoseconds is a second or more.
            UnsupportedFileError: one is before 1677 or after 2262, or the writer's time zone is unknown on this system.
        """
        wanted = count_valid(count, valid)
        seconds, nanos = self._seconds.read(wanted), self._read_nanos(wanted)
        if len(seconds) and (seconds.min() < -2 * _MOST_SECONDS or seconds.max() > 2 * _MOST_SECONDS):  # since 2015
            raise self._out_of_range()
        clock = self._as_shown(seconds)
        clock -= (clock < 0) & (nanos >= _MILLISECOND)  # writers truncate negative milliseconds towards zero
        if len(clock) and (clock.min() <= -_MOST_SECONDS or clock.max() >= _MOST_SECONDS):
            raise self._out_of_range()
        return make_flat(self.column.type, clock * _NANOS + nanos, valid)

    def _read_nanos(self, count: int) -> Integers:
        """Return nanoseconds, which are negative for times before 1970 if pyarrow wrote the file."""
        packed = self._nanos.read(count)
        nanos = packed >> 3
        for factors in (1, _SCALES[packed & 7]):  # checked before scaling too, so that it cannot overflow
            nanos = nanos * factors
            if len(nanos) and (nanos.min() <= -_NANOS or nanos.max() >= _NANOS):
                raise FormatError(f"column {self.column.shown} has a fraction of a second or more; expected less")
        return nanos

    def _as_shown(self, seconds: Integers) -> Integers:
        """Return local times in the writer's time zone, in seconds since 1970."""
        if self._timezone in UTC:
            return seconds + EPOCH_SECONDS
        zoned = pa.timestamp("s", tz=self._timezone)
        try:
            epoch = pc.assume_timezone(pa.scalar(EPOCH_SECONDS, pa.timestamp("s")), self._timezone).value
            instants = pa.array(seconds + epoch, pa.timestamp("s")).cast(zoned)
            shown = np.array(pc.local_timestamp(instants).cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
            late = (seconds + epoch) >= LAST_LISTED
            if late.any():
                shown[late] = (seconds[late] + epoch) + find_offsets(seconds[late] + epoch, self._timezone)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ZoneInfoNotFoundError) as error:
            raise UnsupportedFileError(
                f"column {self.column.shown} was written in the time zone {self._timezone!r}, which is not known here: "
                f"{error}; see that the system has it, or read the file with Spark"
            ) from error
        return shown

    def _out_of_range(self) -> UnsupportedFileError:
        return UnsupportedFileError(
            f"column {self.column.shown} has a time before 1677 or after 2262, which nanoseconds in 64 bits do not "
            "hold; leave the column out, or read the file with Spark"
        )


UNSTABLE_VERSION = (1, 9999)
"""The version of files by writers that anticipated ORC 2 (``UNSTABLE_PRE_2_0``)."""
LONG_DIGITS = 18
"""The most digits of decimals that always fit into 64 bits."""
_MOST_BYTES = 19
"""The most bytes of a varint of 128 bits, seven in each byte."""
_LONG_BYTES = 9
"""The most bytes of a varint that is decoded in vectors: 63 bits."""
_HALF = (1 << 64) - 1


def open_decimals(streams: StripeStreams, column: ReadColumn) -> PresentColumn:
    """Return the reader of a column of kind decimal, whose streams depend on the file's version."""
    is_long = streams.version == UNSTABLE_VERSION and column.type.precision <= LONG_DIGITS
    return (LongDecimalColumn if is_long else DecimalColumn)(streams, column)


class LongDecimalColumn(PresentColumn):
    """A column of kind decimal whose values are integers of the column's scale, in files of `UNSTABLE_VERSION`.

    Source: ORC specification v2, "Decimal Columns".
    """

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._values = IntegerRuns(streams.cursor(column, DATA), 2, is_signed=True)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._values.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return the decimals.

        Raises:
            FormatError: a value has more digits than the column.
        """
        values, digits = self._values.read(count_valid(count, valid)), self.column.type.precision
        if np.any(np.abs(values) >= 10**digits):
            raise FormatError(
                f"column {self.column.shown} has a decimal of more than {digits} digits; expected at most so many"
            )
        return make_flat(self.column.type, np.stack([values, values >> 63], axis=1), valid)


class DecimalColumn(PresentColumn):
    """A column of kind decimal whose values each have a scale of their own."""

    def __init__(self, streams: StripeStreams, column: ReadColumn) -> None:
        super().__init__(streams, column)
        self._varints = streams.cursor(column, DATA)
        self._scales = streams.integers(column, SECONDARY, is_signed=True)

    def seek_values(self, positions: Positions) -> None:
        """Move to the start of a row group."""
        self._varints.seek(*positions.take_place())
        self._scales.seek(positions)

    def read_values(self, count: int, valid: Mask | None) -> pa.Array:
        """Return decimals rescaled to the column's scale.

        Raises:
            FormatError: a value has more digits than the column, or more of them after the point.
        """
        wanted = count_valid(count, valid)
        what = f"column {self.column.shown}"
        raw, ends = _take_varints(self._varints, wanted, what)
        missing = self.column.type.scale - self._scales.read(wanted)
        digits = self.column.type.precision
        halves = _decode_short(raw, ends, missing, digits)
        if halves is None:
            halves = _decode_each(raw, ends, missing, digits, what)
        return make_flat(self.column.type, halves, valid)


def _take_varints(cursor: StreamCursor, count: int, what: str) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Return the bytes of ``count`` varints, and the offset of each one's end."""
    if not count:
        return b"", np.empty(0, np.int64)
    cursor.need(count)
    while True:
        held = np.frombuffer(cursor.data, np.uint8)[cursor.at :]
        ends = np.flatnonzero(held < 128)[:count] + 1
        if len(ends) == count:
            break
        if len(held) - (ends[-1] if len(ends) else 0) > _MOST_BYTES * count:
            raise FormatError(f"{what} has a decimal of more than {_MOST_BYTES} bytes; expected at most so many")
        cursor.need(len(held) + count - len(ends))
    return cursor.take(int(ends[-1])), ends


def _decode_short(
    raw: bytes, ends: npt.NDArray[np.int64], missing: Integers, digits: int
) -> npt.NDArray[np.int64] | None:
    """Return the 64-bit halves of values, the lower first; None if a value needs more than 64 bits or is invalid."""
    lengths = np.diff(ends, prepend=0)
    if len(ends) and (lengths.max() > _LONG_BYTES or missing.min() < 0 or missing.max() > 18):
        return None
    data, starts = np.frombuffer(raw, np.uint8), ends - lengths
    found = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max()) if len(ends) else 0):
        here = lengths > place
        found[here] |= (data[starts[here] + place] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * place)
    values = unzigzag_all(found)
    factors = 10 ** missing.astype(np.int64)
    most = min((1 << 63) - 1, 10**digits - 1)
    if np.any(np.abs(values) > most // factors):
        return None
    values = values * factors
    return np.stack([values, values >> 63], axis=1)


def _decode_each(
    raw: bytes, ends: npt.NDArray[np.int64], missing: Integers, digits: int, what: str
) -> npt.NDArray[np.int64]:
    """Return the 64-bit halves of values of any length, decoded one by one."""
    found, start = bytearray(), 0
    for end, lacks in zip(ends.tolist(), missing.tolist(), strict=True):
        if end - start > _MOST_BYTES:
            raise FormatError(f"{what} has a decimal of {end - start} bytes; expected at most {_MOST_BYTES}")
        value = 0
        for place, byte in enumerate(raw[start:end]):
            value |= (byte & 127) << 7 * place
        value = _rescale(unzigzag(value), lacks, digits, what)
        found += (value & _HALF).to_bytes(8, "little") + (value >> 64 & _HALF).to_bytes(8, "little")
        start = end
    return np.frombuffer(bytes(found), np.int64).reshape(-1, 2)


def _rescale(value: int, lacks: int, digits: int, what: str) -> int:
    if abs(lacks) > MOST_DIGITS:
        raise FormatError(f"{what} has a decimal whose scale is {abs(lacks)} off the column's; expected at most 38")
    if lacks >= 0:
        value *= 10**lacks
    else:
        value, rest = divmod(value, 10**-lacks)
        if rest:
            raise FormatError(f"{what} has a decimal with more digits after the point than its type; expected no more")
    if abs(value) >= 10**digits:
        raise FormatError(f"{what} has a decimal of more than {digits} digits; expected at most so many")
    return value


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
