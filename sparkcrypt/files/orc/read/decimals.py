"""Reads decimals: integers of any length, each with a scale.

Source: ORC specification v1, "Decimal Columns".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.stripe import DATA, SECONDARY
from sparkcrypt.files.orc.read.column import Mask, PresentColumn, count_valid, make_flat
from sparkcrypt.files.orc.read.cursor import Positions, StreamCursor
from sparkcrypt.files.orc.read.integer_runs import IntegerRuns, Integers, unzigzag, unzigzag_all
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.types import MOST_DIGITS, ReadColumn

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
