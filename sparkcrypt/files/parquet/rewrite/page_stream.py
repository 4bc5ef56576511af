"""Reads the pages of a plaintext or encrypted column chunk in file order, as they were before encryption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.modules import LENGTH_BYTES, NONCE_BYTES, ModuleType
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, check_crc
from sparkcrypt.files.parquet.rewrite.page_header import PageHead, read_head
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, has_run_out
from sparkcrypt.files.parquet.thrift.metadata import PageType
from sparkcrypt.files.source import Input
from sparkcrypt.names import AES_GCM_V1
from sparkcrypt.schema import join_dotted

READ_AHEAD_BYTES = 4 * 1024 * 1024
HEADER_BYTES = 256
"""The number of bytes first read to decode a page header; statistics may make it longer."""
STRUCT_BYTES = 64 * 1024
"""The number of bytes read to decode a Bloom filter's header, which has a few numbers."""
MAX_HEADER_BYTES = 16 * 1024 * 1024


class Page:
    """A decrypted page.

    Attributes:
        head: its header; size and CRC are those of the source.
        start: the offset in the source of its header (or of its header's module).
        end: the offset in the source of the first byte after its body.
        body: the page's bytes, still compressed.
    """

    __slots__ = ("body", "end", "head", "start")

    def __init__(self, head: PageHead, start: int, end: int, body: bytes | memoryview) -> None:
        self.head = head
        self.start = start
        self.end = end
        self.body = body


class PageSource(Protocol):
    """A reader of the pages of one column chunk; afterwards ``unauthenticated`` has what nothing authenticated."""

    unauthenticated: set[str]

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order."""
        ...


class Bytes:
    """A range of a file, read from front to back in large pieces into one buffer that all readers of the file share.

    A returned view is therefore only valid until more of the file is read.
    """

    __slots__ = ("_at", "_end", "_file", "_have", "_next", "_view")

    def __init__(self, file: Input, start: int, end: int) -> None:
        self._file = file
        self._view = file.buffer(min(READ_AHEAD_BYTES, end - start))
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
        return self._end - self.position

    def take(self, length: int, what: str) -> memoryview:
        """Take and return the next ``length`` bytes.

        Raises:
            FormatError: fewer are left.
        """
        if not 0 <= length <= self._have - self._at:
            if not 0 <= length <= self.left:
                raise FormatError(f"{what} of {length} bytes; expected at most the {self.left} bytes that are left")
            self._fill(length, what)
        at = self._at
        self._at = at + length
        return self._view[at : at + length]

    def head(self, before: PageHead | None) -> PageHead:
        """Take and return the next page header.

        Raises:
            FormatError: the next bytes are not a page header.
        """
        wanted = HEADER_BYTES
        while True:
            window = self._look(wanted, "a page header")
            try:
                head, length = read_head(window, 0, before, self.position)
            except FormatError as error:
                if wanted >= min(self.left, MAX_HEADER_BYTES) or not has_run_out(error):
                    raise
                wanted = min(wanted * 16, MAX_HEADER_BYTES)
                continue
            self._at += length
            return head

    def struct(self, what: str) -> Struct:
        """Take and return the next Thrift struct.

        Raises:
            FormatError: the next bytes are not a struct.
        """
        struct, length = decode_struct(self._look(STRUCT_BYTES, what), origin=self.position)
        self._at += length
        return struct

    def module(self, what: str) -> bytes:
        """Take and return the next framed module.

        Raises:
            FormatError: fewer bytes are left than the module has.
        """
        length = bytes(self.take(LENGTH_BYTES, what))
        return length + self.take(int.from_bytes(length, "little"), what)

    def _look(self, length: int, what: str) -> bytes:
        """Return the next ``length`` bytes, or all that are left, without taking them."""
        length = min(length, self.left)
        if length > self._have - self._at:
            self._fill(length, what)
        return bytes(self._view[self._at : self._at + length])

    def _fill(self, length: int, what: str) -> None:
        rest = bytes(self._view[self._at : self._have])
        if length > len(self._view):
            self._view = self._file.buffer(length)
        self._view[: len(rest)] = rest
        size = min(len(self._view) - len(rest), self._end - self._next)
        self._file.read_into(self._next, self._view[len(rest) : len(rest) + size], what)
        self._next += size
        self._have = len(rest) + size
        self._at = 0


class PlainPages:
    """The pages of a column chunk that is not encrypted."""

    def __init__(self, file: Input, start: int, end: int, name: str) -> None:
        self._bytes = Bytes(file, start, end)
        self._name = name
        self.unauthenticated: set[str] = set()

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order.

        Raises:
            FormatError: a header or a length does not fit.
            UnsupportedFileError: a page has a type without a module type.
            VerificationError: a page's CRC is not that of its bytes.
        """
        data, name = self._bytes, self._name
        before: PageHead | None = None
        while data.left:
            start = data.position
            head = data.head(before)
            _check_place(head, name, first=before is None)
            body = data.take(head.size, name)
            check_crc(head.crc, body, name)
            yield Page(head, start, data.position, body)
            before = head


class EncryptedPages:
    """The pages of an encrypted column chunk, authenticated as far as the algorithm and the page version do so.

    The first page is a dictionary page if it authenticates as one, whatever the metadata contain: old writers leave the
    dictionary's offset out.
    """

    def __init__(self, file: Input, start: int, end: int, key: ChunkKey) -> None:
        self._bytes = Bytes(file, start, end)
        self._key = key
        self._name = f"column {join_dotted(key.path)} in row group {key.row_group}"
        self.unauthenticated: set[str] = set()

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order.

        Raises:
            FormatError: a length does not fit, or a page's type is not that of its module.
            VerificationError: a module does not authenticate, or a page's CRC is not that of its bytes.
        """
        data, name, number = self._bytes, self._name, 0
        before: PageHead | None = None
        while data.left:
            start = data.position
            module, head = self._head(number, before)
            _check_place(head, name, first=before is None)
            if (head.type == PageType.DICTIONARY_PAGE) != (module is ModuleType.DICTIONARY_PAGE_HEADER):
                raise FormatError(f"{name} has a page of type {head.type}; expected its module's")
            framed = data.take(head.size, name)
            if self._key.algorithm != AES_GCM_V1:
                check_crc(head.crc, framed, name)
            if module is ModuleType.DICTIONARY_PAGE_HEADER:
                yield Page(head, start, data.position, self._open(framed, ModuleType.DICTIONARY_PAGE))
            else:
                yield Page(head, start, data.position, self._data(head, framed, number))
                number += 1
            before = head

    def _head(self, number: int, before: PageHead | None) -> tuple[ModuleType, PageHead]:
        framed = self._bytes.module("a page header")
        if before is None:
            try:
                opened = self._key.open(framed, ModuleType.DICTIONARY_PAGE_HEADER)
                return ModuleType.DICTIONARY_PAGE_HEADER, read_head(opened, 0, None, 0)[0]
            except VerificationError:
                pass  # then it must be the header of a data page
        opened = self._key.open(framed, ModuleType.DATA_PAGE_HEADER, number)
        return ModuleType.DATA_PAGE_HEADER, read_head(opened, 0, before, 0)[0]

    def _data(self, head: PageHead, body: memoryview, number: int) -> bytes:
        """Open a data page; Arrow encrypts all bytes of a V2 page, parquet-mr leaves its levels in clear."""
        levels = head.levels
        if not levels or (_is_frame(body) and not _is_frame(body[levels:])):
            return self._open(body, ModuleType.DATA_PAGE, number)
        if _is_frame(body):  # both forms fit: only authentication can tell them apart
            try:
                return self._open(body, ModuleType.DATA_PAGE, number)
            except VerificationError:
                pass
        self.unauthenticated.add("levels")
        return bytes(body[:levels]) + self._open(body[levels:], ModuleType.DATA_PAGE, number)

    def _open(self, framed: memoryview, module: ModuleType, *page: int) -> bytes:
        key = self._key
        if key.algorithm == AES_GCM_V1:
            return key.open(framed, module, *page)
        self.unauthenticated.add("page")
        return key.cipher.decrypt_ctr(framed, key.name(module, *page))


def _check_place(head: PageHead, name: str, *, first: bool) -> None:
    if head.type == PageType.DICTIONARY_PAGE and not first:
        raise FormatError(f"{name} has a dictionary page after another page; expected it first")
    if head.levels > head.size:
        raise FormatError(f"{name} has a page with {head.levels} bytes of levels; expected no more than the page")


def _is_frame(body: memoryview) -> bool:
    return (
        len(body) >= LENGTH_BYTES + NONCE_BYTES
        and int.from_bytes(body[:LENGTH_BYTES], "little") == len(body) - LENGTH_BYTES
    )
