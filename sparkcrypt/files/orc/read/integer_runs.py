"""Decodes ORC's run lengths of integers, both versions, into 64 bits, starting at any row group.

Values beyond 64 bits wrap around, as in ORC's readers.  Source: ORC specification v1, "Integer Run Length Encoding".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.read.byte_runs import LEAST_REPEAT, LITERALS, check_skipped
from sparkcrypt.files.orc.read.cursor import Positions, StreamCursor

Integers = npt.NDArray[np.int64]

WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""The bit widths of packed values, by their five-bit codes."""
_MASK = (1 << 64) - 1
_MOST_VARINT_BYTES = 10
_NONE: Integers = np.empty(0, np.int64)
_SHORT_REPEAT, _DIRECT, _PATCHED_BASE = range(3)


class IntegerRuns:
    """A reader of the integers of a stream, in order from a row group on.

    Args:
        cursor: the stream.
        version: of the encoding, 1 or 2.
        is_signed: whether values are zigzag encoded.
    """

    __slots__ = ("_cursor", "_is_signed", "_read_run", "_rest")

    def __init__(self, cursor: StreamCursor, version: int, is_signed: bool) -> None:
        self._cursor = cursor
        self._is_signed = is_signed
        self._rest = _NONE
        self._read_run = self._read_run_1 if version == 1 else self._read_run_2

    def seek(self, positions: Positions) -> None:
        """Move to the start of a row group.

        Raises:
            FormatError: the row index has an invalid position.
        """
        self._cursor.seek(*positions.take_place())
        self._rest = _NONE
        self.read(check_skipped(positions.take(), self._cursor.name))

    def read(self, count: int) -> Integers:
        """Return the next integers.

        Raises:
            FormatError: there are fewer, or a run violates the specification.
        """
        parts, missing = [self._rest], count - len(self._rest)
        while missing > 0:
            parts.append(self._read_run())
            missing -= len(parts[-1])
        found = np.concatenate(parts) if len(parts) > 1 else self._rest
        self._rest = found[count:]
        return found[:count]

    def _read_run_1(self) -> Integers:
        header = self._take_byte()
        if header >= LITERALS:
            values = [self._take_varint(self._is_signed) for _ in range(256 - header)]
            return np.array([value & _MASK for value in values], np.uint64).view(np.int64)
        delta = int.from_bytes(self._cursor.take(1), "big", signed=True)
        return _progression(self._take_varint(self._is_signed), delta, header + LEAST_REPEAT)

    def _read_run_2(self) -> Integers:
        first = self._take_byte()
        kind, code = first >> 6, first >> 1 & 31
        if kind == _SHORT_REPEAT:
            value = int.from_bytes(self._cursor.take((first >> 3 & 7) + 1), "big")
            return _progression(unzigzag(value) if self._is_signed else value, 0, (first & 7) + LEAST_REPEAT)
        count = ((first & 1) << 8 | self._take_byte()) + 1
        if kind == _DIRECT:
            found = self._take_packed(count, WIDTHS[code])
            return unzigzag_all(found) if self._is_signed else found.view(np.int64)
        if kind == _PATCHED_BASE:
            return self._read_patched(count, WIDTHS[code])
        return self._read_deltas(count, WIDTHS[code] if code else 0)

    def _read_patched(self, count: int, width: int) -> Integers:
        third, fourth = self._cursor.take(2)
        base_bytes, patch_width = (third >> 5) + 1, WIDTHS[third & 31]
        gap_width, patches = (fourth >> 5) + 1, fourth & 31
        entry_width = next((known for known in WIDTHS if known >= gap_width + patch_width), None)
        if entry_width is None:
            raise FormatError(
                f"{self._cursor.name}: a patch of {gap_width} and {patch_width} bits; expected at most 64 together"
            )
        base, sign = int.from_bytes(self._cursor.take(base_bytes), "big"), 1 << 8 * base_bytes - 1
        base = -(base & ~sign) if base & sign else base
        values = self._take_packed(count, width)
        entries, at = self._take_packed(patches, entry_width).tolist(), 0
        for entry in entries:
            at += entry >> patch_width
            patch = (entry & (1 << patch_width) - 1) << width
            if patch:
                if at >= count:
                    raise FormatError(
                        f"{self._cursor.name}: a patch is of value {at} of a run; expected at most {count - 1}"
                    )
                values[at] |= np.uint64(patch & _MASK)
        values += np.uint64(base & _MASK)
        return values.view(np.int64)

    def _read_deltas(self, count: int, width: int) -> Integers:
        base, delta = self._take_varint(self._is_signed), self._take_varint(True)
        if not width:
            return _progression(base, delta, count)
        steps = self._take_packed(max(0, count - 2), width)
        found = np.empty(count, np.uint64)
        found[0] = base & _MASK
        if count > 1:
            found[1] = delta & _MASK
            found[2:] = steps if delta >= 0 else -steps.view(np.int64).view(np.uint64)
        return np.cumsum(found, dtype=np.uint64).view(np.int64)

    def _take_byte(self) -> int:
        return self._cursor.take(1)[0]

    def _take_varint(self, is_signed: bool) -> int:
        value = shift = 0
        for _ in range(_MOST_VARINT_BYTES):
            byte = self._take_byte()
            value |= (byte & 127) << shift
            if byte < LITERALS:
                return unzigzag(value & _MASK) if is_signed else value
            shift += 7
        raise FormatError(
            f"{self._cursor.name}: an integer has more than {_MOST_VARINT_BYTES} bytes; expected at most so many"
        )

    def _take_packed(self, count: int, width: int) -> npt.NDArray[np.uint64]:
        raw = np.frombuffer(self._cursor.take(-(-count * width // 8)), np.uint8)
        bits = np.zeros((count, 64), np.uint8)
        bits[:, 64 - width :] = np.unpackbits(raw)[: count * width].reshape(count, width)
        return np.packbits(bits, axis=1).view(">u8").reshape(count).astype(np.uint64)


def unzigzag(value: int) -> int:
    """Return the signed integer of a zigzag-encoded one, whose lowest bit is the sign."""
    return value >> 1 ^ -(value & 1)


def unzigzag_all(values: npt.NDArray[np.uint64]) -> Integers:
    """Return the signed integers of zigzag-encoded ones, whose lowest bits are the signs."""
    shifted, signs = (values >> np.uint64(1)).view(np.int64), (values & np.uint64(1)).view(np.int64)
    return np.asarray(shifted ^ -signs, np.int64)


def _progression(base: int, delta: int, count: int) -> Integers:
    steps = np.arange(count, dtype=np.uint64) * np.full(1, delta & _MASK, np.uint64)
    return np.asarray(steps + np.full(1, base & _MASK, np.uint64), np.uint64).view(np.int64)
