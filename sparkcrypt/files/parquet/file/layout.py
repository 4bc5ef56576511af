"""Checks that the parts of a file lie inside its data and do not overlap, and reads one from front to back."""

from __future__ import annotations

from bisect import bisect_right

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file.modules import LENGTH_BYTES
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.files.source import Input

FIRST_OFFSET = 4
"""The offset of the first byte after the magic at a file's start."""

_Region = tuple[int, int, object, str]
"""Where a region begins and ends, what it is of, and which part of that it is."""


class Layout:
    """The regions of one file that its footer refers to.

    Args:
        limit: the offset of the footer, at which data must end.
    """

    __slots__ = ("_regions", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._regions: list[_Region] = []

    def add(self, start: int, end: int, what: object, part: str = "") -> None:
        """Add a region of the file; ``str(what)``, and the part of it that the region is, are its name in messages.

        Raises:
            FormatError: it is not inside the file's data, or its end is before its start.
        """
        if not FIRST_OFFSET <= start <= end <= self.limit:
            raise FormatError(
                f"{_name_region(what, part)} is {end - start} bytes at offset {start}; expected inside {FIRST_OFFSET} "
                f"to {self.limit}"
            )
        if end > start:
            self._regions.append((start, end, what, part))

    def check_apart(self) -> None:
        """Check that no two regions overlap.

        Raises:
            FormatError: two do.
        """
        self._regions.sort(key=_start)
        before: _Region = (0, 0, "", "")
        for region in self._regions:
            if region[0] < before[1]:
                raise FormatError(
                    f"{_name_region(*region[2:])} begins at offset {region[0]}, inside {_name_region(*before[2:])}, "
                    f"which ends at {before[1]}; expected them apart"
                )
            before = region

    def room(self, offset: int) -> int:
        """Return the offset of the next region after an offset, or `limit`; call `check_apart` first, which sorts."""
        after = bisect_right(self._regions, offset, key=_start)
        return self._regions[after][0] if after < len(self._regions) else self.limit


def _name_region(what: object, part: str) -> str:
    return f"the {part} of {what}" if part else str(what)


def _start(region: _Region) -> int:
    return region[0]


READ_AHEAD_BYTES = 1024 * 1024
BUFFER_BYTES = 4 * READ_AHEAD_BYTES
"""The size of the buffer, unless a page is larger: the rest of one read is moved to its start once in four reads."""
HEADER_BYTES = 512
"""The number of bytes first read to decode a Thrift struct in clear; most are shorter."""
MAX_HEADER_BYTES = 16 * 1024 * 1024


class Window:
    """A range of a file, each byte of which is taken once, read into one buffer that all windows of the file share.

    So a view that was taken is valid until more is taken, and one window must be used up before the next is made.
    """

    __slots__ = ("_at", "_end", "_file", "_have", "_next", "_view")

    def __init__(self, file: Input, start: int, end: int) -> None:
        self._file = file
        self._view = file.buffer(max(0, min(BUFFER_BYTES, end - start)))
        self._at = 0
        self._have = 0
        self._next = start
        self._end = end

    @property
    def position(self) -> int:
        """The offset in the file of the next byte."""
        return self._next - self._have + self._at

    @property
    def left(self) -> int:
        """The number of bytes not taken yet."""
        return self._have - self._at + self._end - self._next

    def take(self, length: int, what: object) -> memoryview:
        """Return the next ``length`` bytes.

        Raises:
            FormatError: fewer are left.
        """
        if not 0 <= length <= self._have - self._at:
            self._ensure(length, what)
        at = self._at
        self._at = at + length
        return self._view[at : at + length]

    def take_module(self, what: str) -> memoryview:
        """Return the next framed module, including its length field.

        Raises:
            FormatError: fewer bytes are left than the module has.
        """
        if self._have - self._at < LENGTH_BYTES:
            self._ensure(LENGTH_BYTES, what)
        at = self._at
        return self.take(LENGTH_BYTES + int.from_bytes(self._view[at : at + LENGTH_BYTES], "little"), what)

    def take_struct(self, what: str) -> Struct:
        """Return the next Thrift struct, which is not encrypted.

        Raises:
            FormatError: no valid struct of at most 16 MiB begins here.
        """
        wanted = HEADER_BYTES
        while True:
            size = min(wanted, self.left)
            if self._have - self._at < size:
                self._ensure(size, what)
            data = bytes(self._view[self._at : self._at + size])
            try:
                struct, end = decode_struct(data, origin=self.position)
            except FormatError as error:
                if wanted >= min(self.left, MAX_HEADER_BYTES):
                    raise FormatError(f"{what}: {error}") from error
                wanted *= 8
            else:
                self._at += end
                return struct

    def _ensure(self, length: int, what: object) -> None:
        """Read until ``length`` bytes are in the buffer from where the next byte is."""
        if not 0 <= length <= self.left:
            raise FormatError(f"{what} of {length} bytes; expected at most the {self.left} bytes that are left of it")
        missing = length - (self._have - self._at)
        if self._have + missing > len(self._view):
            self._make_room(length)
        size = min(max(missing, READ_AHEAD_BYTES), self._end - self._next, len(self._view) - self._have)
        self._file.read_into(self._next, self._view[self._have : self._have + size], what)
        self._next += size
        self._have += size

    def _make_room(self, length: int) -> None:
        """Move what is not taken yet to the start of the buffer, which becomes as long as ``length`` at least."""
        rest = bytes(self._view[self._at : self._have])
        if length > len(self._view):
            self._view = self._file.buffer(length)
        self._view[: len(rest)] = rest
        self._at, self._have = 0, len(rest)
