"""Walks the encrypted pages of a column chunk in file order, each authenticated as it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.parquet.metadata import AES_GCM_V1, Algorithm, ColumnMetaData, PageHeader, PageType
from sparkcrypt.parquet.modules import (
    LENGTH_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    ModuleCipher,
    ModuleType,
    module_aad,
    unframe,
)
from sparkcrypt.parquet.schema import Path
from sparkcrypt.parquet.source import Input
from sparkcrypt.parquet.thrift import decode_struct
from sparkcrypt.schema import dotted

READ_AHEAD_BYTES = 1024 * 1024

Unauthenticated = Literal["page", "levels"]
_HEADER_TYPES = {
    ModuleType.DICTIONARY_PAGE_HEADER: (PageType.DICTIONARY_PAGE,),
    ModuleType.DATA_PAGE_HEADER: (PageType.DATA_PAGE, PageType.DATA_PAGE_V2),
}


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """What opens the modules of one encrypted column chunk, and where it stands in the file."""

    cipher: ModuleCipher
    file_aad: bytes
    algorithm: Algorithm
    path: Path
    row_group: int
    column: int

    def name(self, module: ModuleType, page: int | None = None) -> str:
        """Return what messages call a module."""
        number = "" if page is None else f" {page}"
        kind = module.name.lower().replace("_", " ")
        return f"{kind}{number} of column {dotted(self.path)} in row group {self.row_group}"

    def aad(self, module: ModuleType, *page: int) -> bytes:
        """Return the AAD of a module; pages and their headers take the page's number among the data pages."""
        return module_aad(self.file_aad, module, self.row_group, self.column, *page)

    def open(self, framed: bytes, module: ModuleType, *page: int) -> bytes:
        """Return the plaintext of a GCM module, authenticated.

        Raises:
            FormatError: its length is wrong.
            VerificationError: it does not authenticate.
        """
        return self.cipher.decrypt(framed, self.aad(module, *page), self.name(module, *page))


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read: its header, its modules, and what of it nothing authenticates."""

    header: PageHeader
    modules: int
    values: int
    unauthenticated: Unauthenticated | None


class Window:
    """Reads a range of a file from front to back, ahead of what is taken, and never past its end."""

    __slots__ = ("_at", "_buffer", "_end", "_file", "_next")

    def __init__(self, file: Input, start: int, end: int) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self._next = start
        self._end = end

    @property
    def left(self) -> int:
        """Bytes that were not taken yet."""
        return len(self._buffer) - self._at + self._end - self._next

    def take(self, length: int, what: str) -> bytes:
        """Return the next ``length`` bytes.

        Raises:
            FormatError: there are not so many.
        """
        if not 0 <= length <= self.left:
            raise FormatError(f"{what} of {length} bytes; expected at most the {self.left} bytes that are left of it")
        if length > len(self._buffer) - self._at:
            rest = self._buffer[self._at :]
            size = min(max(length - len(rest), READ_AHEAD_BYTES), self._end - self._next)
            self._buffer = rest + self._file.read(self._next, size, what)
            self._next += size
            self._at = 0
        self._at += length
        return self._buffer[self._at - length : self._at]

    def take_module(self, what: str) -> bytes:
        """Return the next framed module.

        Raises:
            FormatError: it does not fit.
        """
        prefix = self.take(LENGTH_BYTES, what)
        return prefix + self.take(int.from_bytes(prefix, "little"), what)


def chunk_range(meta_data: ColumnMetaData, limit: int, what: str) -> tuple[int, int]:
    """Return where a column chunk begins and ends.

    Args:
        meta_data: of the chunk.
        limit: where the footer begins.
        what: names the chunk in messages.

    Raises:
        FormatError: it is not between the file's first magic and its footer.
    """
    start = meta_data.data_page_offset
    dictionary = meta_data.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    end = start + meta_data.total_compressed_size
    if not 4 <= start <= meta_data.data_page_offset <= end <= limit:
        raise FormatError(f"{what} is said to be at offset {start} to {end}; expected inside 4 to {limit}")
    return start, end


def read_pages(key: ChunkKey, window: Window) -> Iterator[Page]:
    """Yield every page of a chunk, authenticated as far as its algorithm and version do so.

    The first page is a dictionary page if it authenticates as one, whatever the metadata says (old writers leave the
    dictionary's offset out).

    Raises:
        FormatError: lengths that do not fit, or a page of another type than its module.
        VerificationError: a module does not authenticate.
    """
    number, first = 0, True
    while window.left:
        framed = window.take_module(key.name(ModuleType.DATA_PAGE_HEADER, number))
        module, header = _open_header(key, framed, number, first)
        if module is ModuleType.DICTIONARY_PAGE_HEADER:
            body = _take_body(key, window, header, ModuleType.DICTIONARY_PAGE)
            yield Page(header, 2, 0, _open_body(key, body, ModuleType.DICTIONARY_PAGE))
        else:
            body = _take_body(key, window, header, ModuleType.DATA_PAGE, number)
            yield _data_page(key, header, body, number)
            number += 1
        first = False


def _open_header(key: ChunkKey, framed: bytes, number: int, first: bool) -> tuple[ModuleType, PageHeader]:
    module = ModuleType.DATA_PAGE_HEADER
    plaintext: bytes | None = None
    if first:
        try:
            plaintext = key.open(framed, ModuleType.DICTIONARY_PAGE_HEADER)
            module = ModuleType.DICTIONARY_PAGE_HEADER
        except VerificationError:
            plaintext = None  # then it must be a data page's
    if plaintext is None:
        plaintext = key.open(framed, module, number)
    header = PageHeader(decode_struct(plaintext)[0])
    if header.type not in _HEADER_TYPES[module]:
        names = " or ".join(kind.name for kind in _HEADER_TYPES[module])
        raise FormatError(f"{key.name(module, number)} is of page type {header.type}; expected {names}")
    return module, header


def _take_body(key: ChunkKey, window: Window, header: PageHeader, module: ModuleType, *page: int) -> bytes:
    return window.take(header.compressed_page_size, key.name(module, *page))


def _open_body(key: ChunkKey, body: bytes, module: ModuleType, *page: int) -> Unauthenticated | None:
    if key.algorithm == AES_GCM_V1:
        key.open(body, module, *page)
        return None
    unframe(body, NONCE_BYTES, key.name(module, *page))
    return "page"


def _data_page(key: ChunkKey, header: PageHeader, body: bytes, number: int) -> Page:
    v2 = header.data_page_header_v2
    if header.type == PageType.DATA_PAGE_V2 and v2 is not None:
        levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
        return Page(header, 2, v2.num_values, _open_v2_body(key, body, levels, number))
    v1 = header.data_page_header
    if header.type != PageType.DATA_PAGE or v1 is None:
        raise FormatError(f"{key.name(ModuleType.DATA_PAGE, number)} has no header of its type; expected one")
    return Page(header, 2, v1.num_values, _open_body(key, body, ModuleType.DATA_PAGE, number))


def _open_v2_body(key: ChunkKey, body: bytes, levels: int, number: int) -> Unauthenticated | None:
    """Open a V2 page of either family: Arrow encrypts all of it, parquet-mr leaves the levels in clear."""
    if not 0 <= levels <= len(body):
        raise FormatError(
            f"{key.name(ModuleType.DATA_PAGE, number)} has {levels} bytes of levels in {len(body)}; expected fewer"
        )
    if levels and not _is_frame(body):
        return _open_body(key, body[levels:], ModuleType.DATA_PAGE, number) or "levels"
    try:
        return _open_body(key, body, ModuleType.DATA_PAGE, number)
    except VerificationError:
        if not levels or not _is_frame(body[levels:]):
            raise
    return _open_body(key, body[levels:], ModuleType.DATA_PAGE, number) or "levels"


def _is_frame(body: bytes) -> bool:
    return (
        len(body) >= LENGTH_BYTES + NONCE_BYTES + TAG_BYTES
        and int.from_bytes(body[:LENGTH_BYTES], "little") == len(body) - LENGTH_BYTES
    )
