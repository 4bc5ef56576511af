"""Reads one stream of a stripe from any position of a row index, without decrypting chunks before it.

Source: ORC specification v1, "Compression", "Indexes".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.cipher import StreamCipher
from sparkcrypt.files.orc.file.compression import HEADER_BYTES, MAX_BLOCK_BYTES, Compression
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
