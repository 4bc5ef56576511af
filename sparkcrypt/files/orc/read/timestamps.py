"""Reads timestamps: seconds since 2015 in the time zone of the stripe's writer, and nanoseconds.

A ``timestamp`` is the local time in the writer's time zone, whatever the reader's; a ``timestamp_instant`` is a point
in time.  Source: ORC specification v1, "Timestamp Columns"; ``TimestampColumnReader`` of ORC's C++ reader.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.stripe import DATA, SECONDARY
from sparkcrypt.files.orc.read.column import Mask, PresentColumn, count_valid, make_flat
from sparkcrypt.files.orc.read.cursor import Positions
from sparkcrypt.files.orc.read.integer_runs import Integers
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.types import ReadColumn

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
