"""Reads the pages of a column chunk in file order, and authenticates those of encrypted columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.modules import (
    LENGTH_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    ModuleType,
)
from sparkcrypt.files.parquet.file.read_ahead import Window
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, ModuleName, check_crc
from sparkcrypt.files.parquet.pages.header_facts import page_facts
from sparkcrypt.files.parquet.thrift.compact import decode_struct
from sparkcrypt.files.parquet.thrift.metadata import PageHeader, PageType
from sparkcrypt.names import AES_GCM_V1

Bytes: TypeAlias = bytes | memoryview
Unauthenticated = Literal["page", "levels"]
_TYPE = PageHeader.type.key
_CRC = PageHeader.crc.key


class Page(NamedTuple):
    """A page that was read; a tuple, since there may be millions.

    ``modules`` is the number of encrypted modules.  ``values`` is 0 for a dictionary page; ``rows`` is None unless it
    is a V2 page.  ``start`` and ``end`` are offsets in the file, including the header.  ``levels`` and ``body`` are the
    page's bytes before encryption, still compressed; ``levels`` is empty except for encrypted V2 pages in parquet-mr's
    form.  ``unauthenticated`` is the part of an encrypted page that nothing authenticates; always None for a plaintext
    column, of which nothing is authenticated.
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


def read_plain_pages(window: Window, what: str) -> Iterator[Page]:
    """Yield every page of a chunk that is not encrypted.

    Args:
        window: the chunk's range of the file.
        what: the chunk's name in messages.

    Raises:
        FormatError: a header or a length does not fit, or a page's type is not allowed there.
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
    """Yield every page of an encrypted chunk, authenticated as far as the algorithm and the page version do so.

    The first page is a dictionary page if it authenticates as one, whatever the metadata contain (old writers leave the
    dictionary's offset out).

    Raises:
        FormatError: a length does not fit, or a page's type is not that of its module.
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
        if key.algorithm != AES_GCM_V1:  # GCM's tag proves more than a CRC
            check_crc(head.view.struct.get(_CRC), framed, name)
        if module is ModuleType.DICTIONARY_PAGE_HEADER:
            levels: Bytes = b""
            body, gap = key.open_page(framed, ModuleType.DICTIONARY_PAGE), _page_gap(key)
        else:
            levels, body, gap = _open_body(key, framed, head.levels, number)
            number += 1
        first = False
        yield Page(head.view, 2, head.values, gap, head.type, head.rows, start, window.position, levels, body)


def _open_header(key: ChunkKey, window: Window, number: int, first: bool) -> tuple[ModuleType, bytes]:
    framed = window.take_module("a page header")
    if first:
        try:
            opened = key.open(framed, ModuleType.DICTIONARY_PAGE_HEADER)
            return ModuleType.DICTIONARY_PAGE_HEADER, opened
        except VerificationError:
            pass  # then it must be the header of a data page
    return ModuleType.DATA_PAGE_HEADER, key.open(framed, ModuleType.DATA_PAGE_HEADER, number)


def _open_body(
    key: ChunkKey, body: memoryview, levels: int, number: int
) -> tuple[Bytes, bytes, Unauthenticated | None]:
    """Return a data page's levels in clear, its decrypted rest, and what of it is not authenticated.

    Arrow encrypts all bytes of a V2 page, parquet-mr leaves its levels in clear: the frame's length distinguishes them.
    If the levels look like a frame themselves, only authentication can.
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
