"""ORC's run lengths of bytes and of bits, decoded from any place.

Source: ORC specification v1, "Byte Run Length Encoding", "Boolean Run Length Encoding".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparkcrypt.errors import FormatError
from sparkcrypt.orc.read.cursor import Positions, StreamCursor

LITERALS, LEAST_REPEAT = 128, 3
BITS = 8
MOST_SKIPPED = 1 << 20
"""Values between where a run begins and where a row group does."""


class ByteRuns:
    """The bytes of a stream of byte runs, in order from where it was sought."""

    __slots__ = ("_cursor", "_rest")

    def __init__(self, cursor: StreamCursor) -> None:
        self._cursor = cursor
        self._rest = b""

    @property
    def name(self) -> str:
        """The stream's name, for messages."""
        return self._cursor.name

    def seek(self, positions: Positions) -> None:
        """Go to where a row group begins.

        Raises:
            FormatError: the row index leads nowhere.
        """
        self._cursor.seek(*positions.take_place())
        self._rest = b""
        self.read(check_skipped(positions.take(), self._cursor.name))

    def read(self, count: int) -> bytes:
        """Return the next bytes.

        Raises:
            FormatError: there are fewer.
        """
        parts, left = [self._rest], count - len(self._rest)
        while left > 0:
            parts.append(self._read_run())
            left -= len(parts[-1])
        found = b"".join(parts)
        self._rest = found[count:]
        return found[:count]

    def _read_run(self) -> bytes:
        cursor = self._cursor
        cursor.need(2)
        header = cursor.data[cursor.at]
        cursor.at += 1
        if header >= LITERALS:
            return cursor.take(256 - header)
        return cursor.take(1) * (header + LEAST_REPEAT)


class BitRuns:
    """The bits of a stream of byte runs, the highest of each byte first."""

    __slots__ = ("_bytes", "_rest")

    def __init__(self, cursor: StreamCursor) -> None:
        self._bytes = ByteRuns(cursor)
        self._rest: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def seek(self, positions: Positions) -> None:
        """Go to where a row group begins.

        Raises:
            FormatError: the row index leads nowhere.
        """
        self._bytes.seek(positions)
        self._rest = self._rest[:0]
        bits = positions.take()
        if bits > BITS:
            raise FormatError(f"{self._bytes.name}: a row index leads to bit {bits} of a byte; expected at most {BITS}")
        self.read(bits)

    def read(self, count: int) -> npt.NDArray[np.bool_]:
        """Return the next bits.

        Raises:
            FormatError: there are fewer.
        """
        missing = count - len(self._rest)
        if missing > 0:
            raw = np.frombuffer(self._bytes.read(-(-missing // BITS)), np.uint8)
            self._rest = np.concatenate([self._rest, np.unpackbits(raw).view(np.bool_)])
        found, self._rest = self._rest[:count], self._rest[count:]
        return found


def check_skipped(count: int, stream: str) -> int:
    """Return how many values a row index says are to be skipped.

    Raises:
        FormatError: they are more than a writer holds back before it writes runs.
    """
    if count > MOST_SKIPPED:
        raise FormatError(f"{stream}: a row index skips {count} values of a run; expected at most {MOST_SKIPPED}")
    return count
