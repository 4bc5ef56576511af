"""Decodes ORC's run lengths of bytes and of bits, starting at any row group.

Source: ORC specification v1, "Byte Run Length Encoding", "Boolean Run Length Encoding".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.read.cursor import Positions, StreamCursor

LITERALS, LEAST_REPEAT = 128, 3
BITS = 8
MOST_SKIPPED = 1 << 20
"""The most values between the start of a run and the start of a row group in it."""


class ByteRuns:
    """A reader of the bytes of a stream of byte runs, in order from a row group on."""

    __slots__ = ("_cursor", "_rest")

    def __init__(self, cursor: StreamCursor) -> None:
        self._cursor = cursor
        self._rest = b""

    @property
    def name(self) -> str:
        """The stream's name, for messages."""
        return self._cursor.name

    def seek(self, positions: Positions) -> None:
        """Move to the start of a row group.

        Raises:
            FormatError: the row index has an invalid position.
        """
        self._cursor.seek(*positions.take_place())
        self._rest = b""
        self.read(check_skipped(positions.take(), self._cursor.name))

    def read(self, count: int) -> bytes:
        """Return the next bytes.

        Raises:
            FormatError: there are fewer.
        """
        parts, missing = [self._rest], count - len(self._rest)
        while missing > 0:
            parts.append(self._read_run())
            missing -= len(parts[-1])
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
    """A reader of the bits of a stream of byte runs, the highest bit of each byte first."""

    __slots__ = ("_bytes", "_rest")

    def __init__(self, cursor: StreamCursor) -> None:
        self._bytes = ByteRuns(cursor)
        self._rest: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def seek(self, positions: Positions) -> None:
        """Move to the start of a row group.

        Raises:
            FormatError: the row index has an invalid position.
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
    """Return the number of values to skip from a row index, after checking it.

    Raises:
        FormatError: it is more than a writer buffers before it writes runs.
    """
    if count > MOST_SKIPPED:
        raise FormatError(f"{stream}: a row index skips {count} values of a run; expected at most {MOST_SKIPPED}")
    return count
