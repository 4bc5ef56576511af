"""Files as pyarrow reads them through Python: one whose end is kept in memory once it is judged, and what all have."""

from __future__ import annotations

import hashlib
import io
from typing import Any, TypeAlias

from sparkcrypt.errors import StorageError
from sparkcrypt.files.small_files import Beside

End: TypeAlias = "tuple[int, int, bytes]"
"""A file's size, the offset at which its sealed end begins, and the SHA-256 of that end."""


class PositionedFile:
    """The position of an open file of known size, which is only read; not thread-safe.

    Args:
        size: its size in bytes.
    """

    def __init__(self, size: int) -> None:
        self._position = 0
        self._size = size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False


class JudgedFile(PositionedFile):
    """An open file whose end is kept in memory once it is judged; not thread-safe.

    Args:
        file: the file, opened by pyarrow.
        name: the file's path, for messages.
        beside: reads other files of the file's folder.
    """

    def __init__(self, file: Any, name: str, beside: Beside) -> None:
        super().__init__(file.size())
        self._file = file
        self._kept: dict[int, bytes] = {}
        self._is_sealed = False
        self._end_starts = self._size
        self._end: bytes = b""
        self.name = name
        self.beside = beside

    def seal(self) -> End:
        """Keep the part of the file's end that was read so far, serve it from memory, and return its fingerprint."""
        for start, data in sorted(self._kept.items(), reverse=True):
            if start < self._end_starts <= start + len(data):
                self._end = b"".join((data[: self._end_starts - start], self._end))
                self._end_starts = start
        self._kept, self._is_sealed = {}, True
        return self._size, self._end_starts, hashlib.sha256(self._end).digest()

    def end_with(self, offset: int, data: bytes) -> None:
        """Replace the sealed file's content from an offset on with these bytes."""
        self._end = self._end[: offset - self._end_starts] + data
        self._size = offset + len(data)

    def ends_with(self, end: End) -> bool:
        """Tell whether the file has the end of an earlier sealed one, and seal it if it does."""
        size, starts, _ = end
        if size != self._size:
            return False
        self.seek(starts)
        self.read()
        return self.seal() == end

    def read(self, length: int = -1) -> bytes:
        """Return at most ``length`` bytes from the current position; all that remain for -1."""
        start = self._position
        stop = self._size if length < 0 else min(self._size, start + length)
        data = b""
        if start < min(stop, self._end_starts):
            try:
                self._file.seek(start)
                data = self._file.read(min(stop, self._end_starts) - start)
            except OSError as error:
                raise StorageError(f"{self.name}: {error}; see that its storage answers, and read it again") from error
            if not self._is_sealed:
                self._kept[start] = data
        if start + len(data) >= self._end_starts:
            data += self._end[start + len(data) - self._end_starts : stop - self._end_starts]
        self._position = start + len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._file.closed)
