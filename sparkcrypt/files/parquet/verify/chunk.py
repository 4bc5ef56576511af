"""Checks one column chunk: its pages, indexes and Bloom filter against its metadata, its row group and each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file.layout import Layout
from sparkcrypt.files.parquet.file.modules import ModuleType
from sparkcrypt.files.parquet.file.read_ahead import Window
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, chunk_range
from sparkcrypt.files.parquet.pages.chunk_pages import ChunkPages
from sparkcrypt.files.parquet.pages.claimed_regions import PartName
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnMetaData,
    PageType,
)
from sparkcrypt.files.parquet.verify.digest import ContentDigest
from sparkcrypt.files.parquet.verify.pages import Unauthenticated, read_pages, read_plain_pages
from sparkcrypt.files.source import Input, naming


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
