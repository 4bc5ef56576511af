"""Reads the pages of a column chunk, plaintext or encrypted, one after another as they were before encryption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sparkcrypt.errors import FormatError, UnsupportedFileError, VerificationError
from sparkcrypt.parquet.metadata import AES_GCM_V1, PageHeader, PageType
from sparkcrypt.parquet.modules import LENGTH_BYTES, NONCE_BYTES, ModuleType
from sparkcrypt.parquet.pages import ChunkKey
from sparkcrypt.parquet.source import Input
from sparkcrypt.parquet.thrift import Struct, decode_struct

READ_AHEAD_BYTES = 4 * 1024 * 1024
HEADER_BYTES = 64 * 1024
"""What is looked at first for a page header; statistics in it may make it longer."""
MAX_HEADER_BYTES = 64 * 1024 * 1024

_TYPE = PageHeader.type.key
_COMPRESSED = PageHeader.compressed_page_size.key


class Page:
    """A page as it is without encryption.

    Attributes:
        header: its header as it stood in the source; ``compressed_page_size`` and ``crc`` are the source's.
        type: the page's type.
        values: how many values a data page holds, nulls included; 0 for a dictionary page.
        start: the source's offset of its header (or of the module that holds it).
        levels: bytes at the start of a V2 page's body that parquet-mr leaves in clear.
        body: the page's bytes, compressed as they were.
    """

    __slots__ = ("body", "header", "levels", "start", "type", "values")

    def __init__(self, header: Struct, kind: int, start: int) -> None:
        self.header = header
        self.type = kind
        self.start = start
        self.levels = 0
        self.values = 0
        self.body: bytes | memoryview = b""


class PageSource(Protocol):
    """What yields the pages of one column chunk; afterwards it knows what of them nothing authenticated."""

    unauthenticated: set[str]

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order."""
        ...


class Bytes:
    """A range of a file, read from front to back in large pieces."""

    __slots__ = ("_at", "_buffer", "_end", "_file", "_next")

    def __init__(self, file: Input, start: int, end: int) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self._next = start
        self._end = end

    @property
    def position(self) -> int:
        """Offset in the file of the next byte."""
        return self._next - len(self._buffer) + self._at

    @property
    def left(self) -> int:
        """Bytes that were not taken yet."""
        return self._end - self.position

    def take(self, length: int, what: str) -> memoryview:
        """Return the next bytes.

        Raises:
            FormatError: there are not so many.
        """
        at = self._at
        if not 0 <= length <= len(self._buffer) - at:
            if not 0 <= length <= self.left:
                raise FormatError(f"{what} of {length} bytes; expected at most the {self.left} bytes that are left")
            self._fill(length, what)
            at = 0
        self._at = at + length
        return memoryview(self._buffer)[at : at + length]

    def header(self, what: str) -> Struct:
        """Take and return the Thrift struct that comes next.

        Raises:
            FormatError: there is none.
        """
        wanted = HEADER_BYTES
        while True:
            if len(self._buffer) - self._at < min(wanted, self.left):
                self._fill(min(wanted, self.left), what)
            try:
                struct, end = decode_struct(self._buffer, start=self._at, origin=self.position - self._at)
            except FormatError:
                if wanted >= min(self.left, MAX_HEADER_BYTES):
                    raise
                wanted *= 16
                continue
            self._at = end
            return struct

    def module(self, what: str) -> bytes:
        """Take and return the framed module that comes next.

        Raises:
            FormatError: it does not fit.
        """
        length = bytes(self.take(LENGTH_BYTES, what))
        return length + self.take(int.from_bytes(length, "little"), what)

    def _fill(self, length: int, what: str) -> None:
        rest = self._buffer[self._at :]
        size = min(max(length - len(rest), READ_AHEAD_BYTES), self._end - self._next)
        data = self._file.read(self._next, size, what)
        self._buffer = rest + data if rest else data
        self._next += size
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
            FormatError: a header or a length that does not fit.
            UnsupportedFileError: a page of a type that has no module of its own.
        """
        data, name, first = self._bytes, self._name, True
        while data.left:
            start = data.position
            header = data.header(name)
            page = Page(header, _page_type(header, name, first), start)
            _describe(page, name)
            page.body = data.take(_size(header, name), name)
            first = False
            yield page


class EncryptedPages:
    """The pages of an encrypted column chunk, each authenticated as far as its algorithm and version do so.

    The first page is a dictionary page if it authenticates as one, whatever the metadata says: old writers leave the
    dictionary's offset out.
    """

    def __init__(self, file: Input, start: int, end: int, key: ChunkKey) -> None:
        self._bytes = Bytes(file, start, end)
        self._key = key
        self.unauthenticated: set[str] = set()

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order.

        Raises:
            FormatError: a length that does not fit, or a page of another type than its module.
            VerificationError: a module does not authenticate.
        """
        data, key, number, first = self._bytes, self._key, 0, True
        while data.left:
            start = data.position
            module, header = self._header(number, first)
            page = Page(header, _page_type(header, key.name(module, number), first), start)
            _describe(page, key.name(module, number))
            if (page.type == PageType.DICTIONARY_PAGE) != (module is ModuleType.DICTIONARY_PAGE_HEADER):
                raise FormatError(f"{key.name(module, number)} is of page type {page.type}; expected its module's")
            body = data.take(_size(header, key.name(ModuleType.DATA_PAGE, number)), "a page")
            if module is ModuleType.DICTIONARY_PAGE_HEADER:
                page.body = self._open(body, ModuleType.DICTIONARY_PAGE)
            else:
                page.body = self._data(page, body, number)
                number += 1
            first = False
            yield page

    def _header(self, number: int, first: bool) -> tuple[ModuleType, Struct]:
        framed = self._bytes.module("a page header")
        if first:
            try:
                opened = self._key.open(framed, ModuleType.DICTIONARY_PAGE_HEADER)
                return ModuleType.DICTIONARY_PAGE_HEADER, decode_struct(opened)[0]
            except VerificationError:
                pass  # then it must be a data page's
        return ModuleType.DATA_PAGE_HEADER, decode_struct(self._key.open(framed, ModuleType.DATA_PAGE_HEADER, number))[
            0
        ]

    def _data(self, page: Page, body: memoryview, number: int) -> bytes:
        """Open a data page; of V2 pages Arrow encrypts all, parquet-mr leaves the levels in clear."""
        levels = page.levels
        if not levels or (_is_frame(body) and not _is_frame(body[levels:])):
            return self._open(body, ModuleType.DATA_PAGE, number)
        if _is_frame(body):  # both fit, so only authentication can tell
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


def _page_type(header: Struct, name: str, first: bool) -> int:
    kind = header.get(_TYPE)
    if kind == PageType.INDEX_PAGE:
        raise UnsupportedFileError(f"{name} has an INDEX_PAGE, which has no module type; use the Spark engine for it")
    if kind == PageType.DICTIONARY_PAGE and not first:
        raise FormatError(f"{name} has a dictionary page after another page; expected it first")
    if kind not in (PageType.DATA_PAGE, PageType.DICTIONARY_PAGE, PageType.DATA_PAGE_V2):
        raise FormatError(f"{name} has a page of type {kind!r}; expected 0 (data), 2 (dictionary) or 3 (data V2)")
    return int(kind)


def _describe(page: Page, name: str) -> None:
    """Fill in what the header of its type says of a data page."""
    header = PageHeader(page.header)
    if page.type == PageType.DATA_PAGE:
        v1 = header.data_page_header
        if v1 is None:
            raise FormatError(f"{name} has a data page without data_page_header; expected one")
        page.values = v1.num_values
    elif page.type == PageType.DATA_PAGE_V2:
        v2 = header.data_page_header_v2
        if v2 is None:
            raise FormatError(f"{name} has a V2 data page without data_page_header_v2; expected one")
        page.values = v2.num_values
        page.levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
        if not 0 <= page.levels <= _size(page.header, name):
            raise FormatError(f"{name} has a page with {page.levels} bytes of levels; expected no more than the page")


def _size(header: Struct, name: str) -> int:
    size = header.get(_COMPRESSED)
    if not isinstance(size, int) or size < 0:
        raise FormatError(f"{name} has a page header with compressed_page_size {size!r}; expected 0 or more")
    return size


def _is_frame(body: memoryview) -> bool:
    return (
        len(body) >= LENGTH_BYTES + NONCE_BYTES
        and int.from_bytes(body[:LENGTH_BYTES], "little") == len(body) - LENGTH_BYTES
    )
