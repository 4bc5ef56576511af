"""Walks the pages of a column chunk in file order, those of encrypted columns authenticated as they are read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.parquet.layout import FIRST_OFFSET
from sparkcrypt.parquet.metadata import (
    AES_GCM_V1,
    Algorithm,
    ColumnMetaData,
    PageHeader,
    PageType,
)
from sparkcrypt.parquet.modules import (
    LENGTH_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    ModuleCipher,
    ModuleType,
    module_aad,
)
from sparkcrypt.parquet.page_facts import page_facts
from sparkcrypt.parquet.schema import Path
from sparkcrypt.parquet.source import naming
from sparkcrypt.parquet.thrift import decode_struct
from sparkcrypt.parquet.window import Window
from sparkcrypt.schema import dotted

__all__ = [
    "ChunkKey",
    "Page",
    "Unauthenticated",
    "Window",
    "check_crc",
    "chunk_range",
    "read_pages",
    "read_plain_pages",
]

Bytes: TypeAlias = bytes | memoryview
Unauthenticated = Literal["page", "levels"]
_TYPE = PageHeader.type.key
_CRC = PageHeader.crc.key


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

    def open(self, framed: Bytes, module: ModuleType, *page: int) -> bytes:
        """Return the plaintext of a GCM module, authenticated.

        Raises:
            FormatError: its length is wrong.
            VerificationError: it does not authenticate.
        """
        aad = module_aad(self.file_aad, module, self.row_group, self.column, *page)
        return self.cipher.decrypt(framed, aad, ModuleName(self, module, *page))

    def open_page(self, framed: Bytes, module: ModuleType, *page: int) -> bytes:
        """Return the plaintext of a page's body by the file's algorithm; under CTR nothing of it is authenticated.

        Raises:
            FormatError: its length is wrong.
            VerificationError: it does not authenticate.
        """
        if self.algorithm == AES_GCM_V1:
            return self.open(framed, module, *page)
        return self.cipher.decrypt_ctr(framed, ModuleName(self, module, *page))


class ModuleName(NamedTuple):
    """What messages call a module; text is made of it only when there is a message."""

    key: ChunkKey
    module: ModuleType
    page: int | None = None

    def __str__(self) -> str:
        return self.key.name(self.module, self.page)


class Page(NamedTuple):
    """A page that was read; a tuple, since there may be millions.

    ``modules`` counts encrypted modules.  ``values`` of a dictionary page are 0; ``rows`` are told by V2 pages only.
    ``start`` and ``end`` are offsets in the file, header included.  ``levels`` and ``body`` together are the page's
    bytes before encryption, compressed as they were; only V2 pages of parquet-mr's form have the first apart.
    ``unauthenticated`` is what of the page nothing authenticates (for a plaintext column: None, since nothing is).
    """

    header: PageHeader
    modules: int
    values: int
    unauthenticated: Unauthenticated | None
    type: int
    rows: int | None
    start: int
    end: int
    levels: Bytes
    body: Bytes


def chunk_range(meta_data: ColumnMetaData, limit: int, what: object) -> tuple[int, int]:
    """Return where a column chunk begins and ends; one of no pages is empty, at the first offset there is.

    Args:
        meta_data: of the chunk.
        limit: where the footer begins.
        what: names the chunk in messages, by its text.

    Raises:
        FormatError: it is not between the file's first magic and its footer, or it announces a negative number of
            values.
    """
    with naming(str(what)):
        start = meta_data.data_page_offset
        dictionary, values = meta_data.dictionary_page_offset, meta_data.num_values
        size = meta_data.total_compressed_size
    if values < 0:
        raise FormatError(f"{what} announces {values} values; expected a count")
    # 0, and an offset behind its data, is how some writers say that there is no dictionary; and 0, where there are no
    # values, how Arrow says that no data follows one.
    if dictionary and (dictionary < start or (start == 0 and values == 0)):
        start = dictionary
    if not (start or size or values):
        return FIRST_OFFSET, FIRST_OFFSET
    end = start + size
    if not FIRST_OFFSET <= start <= end <= limit:
        raise FormatError(f"{what} is said to be at offset {start} to {end}; expected inside {FIRST_OFFSET} to {limit}")
    return start, end


def read_plain_pages(window: Window, what: str) -> Iterator[Page]:
    """Yield every page of a chunk that is not encrypted.

    Args:
        window: the chunk's range of the file.
        what: names the chunk in messages.

    Raises:
        FormatError: a header or a length that does not fit, or pages of a type or in an order that cannot be.
    """
    first = True
    while window.left:
        start = window.position
        head = page_facts(window.take_struct(f"a page header of {what}"), what, first)
        body = window.take(head.size, f"a page of {what}")
        check_crc(head.view.struct.get(_CRC), body, what)
        yield Page(head.view, 0, head.values, None, head.type, head.rows, start, window.position, b"", body)
        first = False


def read_pages(key: ChunkKey, window: Window) -> Iterator[Page]:
    """Yield every page of an encrypted chunk, authenticated as far as its algorithm and version do so.

    The first page is a dictionary page if it authenticates as one, whatever the metadata says (old writers leave the
    dictionary's offset out).

    Raises:
        FormatError: lengths that do not fit, or a page of another type than its module.
        VerificationError: a module does not authenticate.
    """
    number, first = 0, True
    while window.left:
        start = window.position
        module, wire = _open_header(key, window, number, first)
        name = ModuleName(key, module, number)
        struct = decode_struct(wire)[0]
        if (struct.get(_TYPE) == PageType.DICTIONARY_PAGE) != (module is ModuleType.DICTIONARY_PAGE_HEADER):
            expected = "DICTIONARY_PAGE" if module is ModuleType.DICTIONARY_PAGE_HEADER else "DATA_PAGE or DATA_PAGE_V2"
            raise FormatError(f"{name} is of page type {struct.get(_TYPE)!r}; expected {expected}")
        head = page_facts(struct, name, first)
        framed = window.take(head.size, name)
        if key.algorithm != AES_GCM_V1:  # which says more than a CRC could
            check_crc(head.view.struct.get(_CRC), framed, name)
        if module is ModuleType.DICTIONARY_PAGE_HEADER:
            levels: Bytes = b""
            body, gap = key.open_page(framed, ModuleType.DICTIONARY_PAGE), _page_gap(key)
        else:
            levels, body, gap = _open_body(key, framed, head.levels, number)
            number += 1
        first = False
        yield Page(head.view, 2, head.values, gap, head.type, head.rows, start, window.position, levels, body)


def check_crc(crc: object, stored: memoryview, what: object) -> None:
    """Compare a page's CRC, if it has one (or None), with its bytes as they are in the file.

    Raises:
        VerificationError: they differ, so the page is not what its writer wrote.
    """
    if isinstance(crc, int) and crc & 0xFFFFFFFF != zlib.crc32(stored):
        raise VerificationError(
            f"{what} has a page whose CRC is not that of its bytes, so it was damaged since it was written; restore "
            "the file, or have an engine that decodes pages read it"
        )


def _open_header(key: ChunkKey, window: Window, number: int, first: bool) -> tuple[ModuleType, bytes]:
    framed = window.take_module("a page header")
    if first:
        try:
            opened = key.open(framed, ModuleType.DICTIONARY_PAGE_HEADER)
            return ModuleType.DICTIONARY_PAGE_HEADER, opened
        except VerificationError:
            pass  # then it must be a data page's
    return ModuleType.DATA_PAGE_HEADER, key.open(framed, ModuleType.DATA_PAGE_HEADER, number)


def _open_body(
    key: ChunkKey, body: memoryview, levels: int, number: int
) -> tuple[Bytes, bytes, Unauthenticated | None]:
    """Return levels in clear, opened rest and what is not authenticated of a data page.

    Of V2 pages Arrow encrypts everything, parquet-mr leaves the levels in clear: the frame's length tells which.  Where
    levels look like a frame themselves, only authentication can tell.
    """
    gap = _page_gap(key)
    apart = levels > 0 and _is_frame(key, body[levels:])
    if not apart or _is_frame(key, body):
        try:
            return b"", key.open_page(body, ModuleType.DATA_PAGE, number), gap
        except VerificationError:
            if not apart:
                raise
    opened = key.open_page(body[levels:], ModuleType.DATA_PAGE, number)
    return body[:levels], opened, gap or "levels"


def _page_gap(key: ChunkKey) -> Unauthenticated | None:
    return None if key.algorithm == AES_GCM_V1 else "page"


def _is_frame(key: ChunkKey, body: memoryview) -> bool:
    least = NONCE_BYTES + (TAG_BYTES if key.algorithm == AES_GCM_V1 else 0)
    length = len(body) - LENGTH_BYTES
    return length >= least and int.from_bytes(body[:LENGTH_BYTES], "little") == length
