"""Decodes the runs of streams: of bytes and bits, and of integers in both encodings.

Reads one stream of a stripe from any position of a row index, without decrypting chunks before it.  Source: ORC
specification v1, "Compression", "Indexes".

Decodes ORC's run lengths of bytes and of bits, starting at any row group.  Source: ORC specification v1, "Byte Run
Length Encoding", "Boolean Run Length Encoding".

Decodes ORC's run lengths of integers, both versions, into 64 bits, starting at any row group.  Values beyond 64 bits
wrap around, as in ORC's readers.  Source: ORC specification v1, "Integer Run Length Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.compression import HEADER_BYTES, MAX_BLOCK_BYTES, Compression
from sparkcrypt.files.orc.file.encryption import StreamCipher
from sparkcrypt.files.source import Input

PIECE_BYTES = 256 * 1024
"""The most bytes read and decrypted at once of a range that is known to be needed."""
UNPLANNED_BYTES = 4 * 1024
"""The number of bytes read at once of an uncompressed stream beyond the planned range."""


@dataclass(frozen=True, slots=True)
class StreamBytes:
    """The place of a stream in its file, and its decryption.

    ``offset`` and ``length`` are in bytes; ``start_cipher`` returns the cipher from a byte offset in the stream on; it
    is None if the stream is in clear.
    """

    file: Input
    name: str
    offset: int
    length: int
    start_cipher: Callable[[int], StreamCipher] | None
    compression: Compression


class Positions:
    """The position numbers of a row index's entry for one column, taken stream by stream.

    Args:
        numbers: of the row group to read; None for the first of a stripe, all of whose numbers are zero.
        after: of the row group after the last one to read; None if unknown.
        is_compressed: whether the file has chunks, whose offsets are then among the numbers.
        what: the column, for messages.
    """

    __slots__ = ("_after", "_at", "_is_compressed", "_numbers", "_what")

    def __init__(
        self, numbers: Sequence[int] | None, after: Sequence[int] | None, is_compressed: bool, what: str
    ) -> None:
        self._numbers = numbers
        self._after = after
        self._is_compressed = is_compressed
        self._what = what
        self._at = 0

    def take(self) -> int:
        """Return the next number.

        Raises:
            FormatError: the entry has no more.
        """
        at, self._at = self._at, self._at + 1
        if self._numbers is None:
            return 0
        if at >= len(self._numbers):
            raise FormatError(f"{self._what}: its row index has {len(self._numbers)} positions; expected more")
        return self._numbers[at]

    def take_place(self) -> tuple[int, int, int | None]:
        """Return a position in a stream: the chunk's offset, a byte of its content, and the planned end or None.

        Raises:
            FormatError: as `take`.
        """
        end = None if self._after is None or self._at >= len(self._after) else self._after[self._at]
        if self._is_compressed:
            return self.take(), self.take(), end
        return self.take(), 0, end


class StreamCursor:
    """A cursor over the content of a stream, which is decrypted and decompressed as far as it is read."""

    __slots__ = ("_cipher", "_content", "_loaded", "_next", "_planned", "_raw", "_raw_end", "_stream", "at", "data")

    def __init__(self, stream: StreamBytes) -> None:
        self._stream = stream
        self._loaded = -1
        self._content = b""
        self._next = self._raw_end = self._planned = 0
        self._raw = b""
        self._cipher: StreamCipher | None = None
        self.data = b""
        """The loaded content; the bytes before `at` were taken."""
        self.at = 0
        self.seek(0, 0, None)

    def seek(self, chunk: int, byte: int, end: int | None) -> None:
        """Move to a position.

        Args:
            chunk: the offset in the stream of a chunk; without compression, of a byte.
            byte: the offset in the chunk's content.
            end: the offset in the stream up to which all bytes will be needed; None for the whole stream.

        Raises:
            FormatError: the position is outside the stream, or its chunk is damaged.
            StorageError: the storage failed.
        """
        stream = self._stream
        if chunk > stream.length or byte > MAX_BLOCK_BYTES:
            raise FormatError(f"{stream.name}: a row index leads to {chunk}, {byte}; expected inside {stream.length}")
        self._planned = stream.length if end is None else min(end, stream.length)
        if chunk != self._loaded:
            self._next = self._raw_end = chunk
            self._raw, self._cipher, self._loaded = b"", None, -1
            self.data = b""
            if byte:
                self.data = self._load()
        else:
            self.data = self._content
        self.at = 0
        while byte > len(self.data) and self._next < stream.length:
            byte -= len(self.data)
            self.data = self._load()
        if byte > len(self.data):
            raise FormatError(f"{stream.name}: a row index leads {byte - len(self.data)} bytes after its end")
        self.at = byte

    @property
    def name(self) -> str:
        """The stream's name, for messages."""
        return self._stream.name

    def need(self, count: int) -> None:
        """Load the stream until ``count`` bytes from `at` on are in `data`.

        Raises:
            FormatError: the stream ends early, or a chunk is damaged.
            StorageError: the storage failed.
        """
        missing = count - (len(self.data) - self.at)
        if missing <= 0:
            return
        parts = [self.data[self.at :]]
        while missing > 0:
            if self._next >= self._stream.length:
                raise FormatError(f"{self._stream.name}: ends {missing} bytes early; expected more values")
            parts.append(self._load())
            missing -= len(parts[-1])
        self.data, self.at = b"".join(parts), 0

    def take(self, count: int) -> bytes:
        """Return the next bytes.

        Raises:
            FormatError, StorageError: as `need`.
        """
        self.need(count)
        at, self.at = self.at, self.at + count
        return self.data[at : self.at]

    def _load(self) -> bytes:
        """Return the content of the next chunk; without compression, of the next piece."""
        stream, start = self._stream, self._next
        if stream.compression.codec == "none":
            size = PIECE_BYTES if start < self._planned else UNPLANNED_BYTES
            end = min(start + size, self._planned if start < self._planned else stream.length)
            content = self._read_raw(end)
        else:
            size = int.from_bytes(self._peek_raw(HEADER_BYTES), "little") >> 1
            raw = self._read_raw(start + HEADER_BYTES + size)
            content = next(stream.compression.chunks(raw, stream.name))
        self._loaded, self._content = start, content
        return content

    def _peek_raw(self, count: int) -> bytes:
        self._fetch(self._next + count)
        return self._raw[:count]

    def _read_raw(self, end: int) -> bytes:
        self._fetch(end)
        count = end - self._next
        found, self._raw, self._next = self._raw[:count], self._raw[count:], end
        return found

    def _fetch(self, end: int) -> None:
        """Read and decrypt up to an offset, and as much of the planned range as fits into a piece."""
        if end <= self._raw_end:
            return
        stream, start = self._stream, self._raw_end
        if end > stream.length:
            raise FormatError(f"{stream.name}: a chunk ends at {end}; expected at most {stream.length}")
        end = max(end, min(self._planned, start + PIECE_BYTES))
        found = stream.file.read(stream.offset + start, end - start, stream.name)
        if stream.start_cipher is not None:
            self._cipher = self._cipher or stream.start_cipher(start)
            found = self._cipher.update(found)
        self._raw, self._raw_end = self._raw + found, end


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
