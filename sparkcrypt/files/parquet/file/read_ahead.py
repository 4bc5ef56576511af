"""Reads a range of a file from front to back, with read-ahead that never passes the end of the range."""

from __future__ import annotations

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file.modules import LENGTH_BYTES
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.files.source import Input

READ_AHEAD_BYTES = 1024 * 1024
HEADER_BYTES = 4 * 1024
"""The number of bytes first read to decode a Thrift struct in clear; most are shorter."""
MAX_HEADER_BYTES = 16 * 1024 * 1024


class Window:
    """A range of bytes, each taken once.  Views that were taken stay valid as long as the caller keeps them."""

    __slots__ = ("_at", "_buffer", "_end", "_file", "_next", "_view")

    def __init__(self, file: Input, start: int, end: int) -> None:
        self._file = file
        self._buffer = b""
        self._view = memoryview(b"")
        self._at = 0
        self._next = start
        self._end = end

    @property
    def position(self) -> int:
        """The offset in the file of the next byte."""
        return self._next - len(self._buffer) + self._at

    @property
    def left(self) -> int:
        """The number of bytes not taken yet."""
        return len(self._buffer) - self._at + self._end - self._next

    def take(self, length: int, what: object) -> memoryview:
        """Return the next ``length`` bytes.

        Raises:
            FormatError: fewer are left.
        """
        at = self._at
        if not 0 <= length <= len(self._buffer) - at:
            self._ensure(length, what)
            at = 0
        self._at = at + length
        return self._view[at : at + length]

    def take_module(self, what: str) -> memoryview:
        """Return the next framed module, including its length field.

        Raises:
            FormatError: fewer bytes are left than the module has.
        """
        if len(self._buffer) - self._at < LENGTH_BYTES:
            self._ensure(LENGTH_BYTES, what)
        at = self._at
        return self.take(LENGTH_BYTES + int.from_bytes(self._buffer[at : at + LENGTH_BYTES], "little"), what)

    def take_struct(self, what: str) -> Struct:
        """Return the next Thrift struct, which is not encrypted.

        Raises:
            FormatError: no valid struct of at most 16 MiB begins here.
        """
        wanted = HEADER_BYTES
        while True:
            held = len(self._buffer) - self._at
            if held < wanted and held < self.left:
                self._ensure(min(wanted, self.left), what)
            try:
                struct, end = decode_struct(self._buffer, start=self._at, origin=self.position - self._at)
            except FormatError as error:
                if wanted >= min(self.left, MAX_HEADER_BYTES):
                    raise FormatError(f"{what}: {error}") from error
                wanted *= 16
            else:
                self._at = end
                return struct

    def _ensure(self, length: int, what: object) -> None:
        if not 0 <= length <= self.left:
            raise FormatError(f"{what} of {length} bytes; expected at most the {self.left} bytes that are left of it")
        rest = self._buffer[self._at :]
        self._buffer, self._view = b"", memoryview(b"")  # freed before the next part is read
        size = min(max(length - len(rest), READ_AHEAD_BYTES), self._end - self._next)
        data = self._file.read(self._next, size, str(what))
        self._next += size
        self._buffer = rest + data if rest else data
        self._view = memoryview(self._buffer)
        self._at = 0
