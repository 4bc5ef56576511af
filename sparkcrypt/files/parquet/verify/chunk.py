"""Checks one column chunk: its pages, indexes and Bloom filter against its metadata, its row group and each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.layout import Layout, Window
from sparkcrypt.files.parquet.file.modules import LENGTH_BYTES, NONCE_BYTES, TAG_BYTES, ModuleType
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, ChunkPages, ModuleName, PartName, check_crc, chunk_range
from sparkcrypt.files.parquet.pages.leniency import page_facts
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnMetaData,
    PageHeader,
    PageType,
)
from sparkcrypt.files.parquet.verify.digest import ContentDigest
from sparkcrypt.files.source import Input, naming
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


@dataclass(slots=True)
class FileCheck:
    """The state shared by the checks of one file's chunks; the regions in ``layout`` do not overlap."""

    file: Input
    layout: Layout
    digest: ContentDigest
    modules: int = 0
    gaps: dict[tuple[Unauthenticated, str], None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The place of a chunk in its file.

    ``row_group`` and ``column`` are indices in the footer; the ordinals for AADs are in ``key``, which is None for a
    column that is not encrypted.  ``rows`` is the row group's number of rows; ``repeated`` is True if a row may have
    many values.
    """

    row_group: int
    column: int
    dotted: str
    rows: int
    repeated: bool
    key: ChunkKey | None

    @property
    def name(self) -> str:
        """The name of the chunk in messages."""
        return str(PartName(self.dotted, self.row_group))


class ChunkCheck:
    """The check of one column chunk."""

    def __init__(self, shared: FileCheck, place: ChunkPlace, chunk: ColumnChunk, meta_data: ColumnMetaData) -> None:
        self._shared = shared
        self._place = place
        self._chunk = chunk
        self._meta_data = meta_data
        self._pages = ChunkPages(place.name, place.rows, repeated=place.repeated, encrypted=place.key is not None)

    def run(self) -> None:
        """Check the chunk, whose regions are in the layout already, and add its content to the digest.

        Raises:
            FormatError: a part violates the specification or contradicts another part of the file.
            VerificationError: a module does not authenticate.
        """
        place, shared = self._place, self._shared
        shared.digest.column(place.row_group, place.column, self._chunk.struct, self._meta_data.struct)
        self._read_pages()
        chunk = self._chunk
        offset_index, column_index, _ = self._pages.select_fitting_indexes(
            lambda: self._index(ModuleType.OFFSET_INDEX, chunk.offset_index_offset, chunk.offset_index_length),
            lambda: self._index(ModuleType.COLUMN_INDEX, chunk.column_index_offset, chunk.column_index_length),
        )
        if offset_index is not None:
            shared.digest.offset_index(place.row_group, place.column, offset_index)
        if column_index is not None:
            shared.digest.column_index(place.row_group, place.column, column_index)
        if offset := self._meta_data.bloom_filter_offset:
            self.check_bloom_filter(offset, self._meta_data.bloom_filter_length)

    def _read_pages(self) -> None:
        place, shared, name = self._place, self._shared, self._place.name
        start, end = chunk_range(self._meta_data, shared.layout.limit, name)
        key, window = place.key, Window(shared.file, start, end)
        pages = read_plain_pages(window, name) if key is None else read_pages(key, window)
        for page in pages:
            shared.digest.page(place.row_group, place.column, page.header.struct, page.levels, page.body)
            shared.modules += page.modules
            if page.unauthenticated is not None:
                shared.gaps[page.unauthenticated, place.dotted] = None
            if page.type != PageType.DICTIONARY_PAGE:
                self._pages.add(page.start, page.end - page.start, page.values, page.rows)
        self._pages.check(self._meta_data, start)

    def _index(self, module: ModuleType, offset: int | None, length: int | None) -> Struct | None:
        place, shared = self._place, self._shared
        if offset is None and length is None:
            return None
        what = self._name_module(module)
        if offset is None or length is None:
            raise FormatError(f"{what} has an offset or a length; expected both")
        data = shared.file.read(offset, length, what)
        if place.key is not None:
            data = place.key.open(data, module)
            shared.modules += 1
        with naming(what):
            return decode_struct(data, origin=offset if place.key is None else 0)[0]

    def _name_module(self, module: ModuleType) -> str:
        return f"the {module.name.lower().replace('_', ' ')} of {self._place.name}"

    def check_bloom_filter(self, offset: int, length: int | None) -> None:
        """Check the Bloom filter at an offset; ``length`` is None if the metadata does not contain it."""
        place, shared, what = self._place, self._shared, f"the Bloom filter of {self._place.name}"
        window = Window(shared.file, offset, shared.layout.room(offset))
        if place.key is None:
            struct = window.take_struct(what)
            size = BloomFilterHeader(struct).num_bytes
            bitset: bytes | memoryview = window.take(size, what)
        else:
            struct, bitset = self._open_bloom_filter(place.key, window, what)
            size = BloomFilterHeader(struct).num_bytes
        if size != len(bitset):
            raise FormatError(f"{what}: a bit set of {len(bitset)} bytes; expected {size}")
        if length is not None and window.position - offset != length:
            raise FormatError(f"{what} takes {window.position - offset} bytes; expected {length}")
        shared.digest.bloom_filter(place.row_group, place.column, struct, bitset)

    def _open_bloom_filter(self, key: ChunkKey, window: Window, what: str) -> tuple[Struct, bytes]:
        opened = [key.open(window.take_module(what), module) for module in _BLOOM_FILTER]
        self._shared.modules += len(opened)
        return decode_struct(opened[0])[0], opened[1]


_BLOOM_FILTER = (ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET)


_LENGTH_BYTES = 4


def check_nulls(shared: FileCheck, place: ChunkPlace, meta_data: ColumnMetaData) -> None:
    """Check that every page of a chunk is one uncompressed run of definition level 0, followed by no values.

    Args:
        shared: the check of its file.
        place: the chunk's place; its counts have been checked.
        meta_data: of the chunk.

    Raises:
        VerificationError: a page holds anything else.
    """
    window = Window(shared.file, *chunk_range(meta_data, shared.layout.limit, place.name))
    key = place.key
    for page in read_plain_pages(window, place.name) if key is None else read_pages(key, window):
        runs = meta_data.codec == 0 and page.type == PageType.DATA_PAGE and not len(page.levels)
        if not runs or not _is_run_of_nulls(bytes(page.body), page.values):
            raise VerificationError(
                f"{place.name} holds more than nulls; it was to be replaced by nulls, so keep the source"
            )


def _is_run_of_nulls(body: bytes, values: int) -> bool:
    """Return whether a V1 page's bytes are only definition levels, with level 0 for each value."""
    size = int.from_bytes(body[:_LENGTH_BYTES], "little")
    levels = body[_LENGTH_BYTES:]
    if size != len(levels) or not levels.endswith(b"\0"):
        return False
    header, shift = 0, 0
    *groups, _ = levels
    for number, group in enumerate(groups):
        if (group < 0x80) != (number == len(groups) - 1):
            return False
        header |= (group & 0x7F) << shift
        shift += 7
    return header == values << 1
