"""Checks one column chunk: its pages, indexes and Bloom filter against its metadata, its row group and each other."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.parquet.digest import ContentDigest
from sparkcrypt.parquet.layout import Layout
from sparkcrypt.parquet.metadata import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnIndex,
    ColumnMetaData,
    OffsetIndex,
    PageType,
)
from sparkcrypt.parquet.modules import ModuleType
from sparkcrypt.parquet.pages import ChunkKey, Page, Unauthenticated, chunk_range, read_pages, read_plain_pages
from sparkcrypt.parquet.regions import PartName
from sparkcrypt.parquet.source import Input, naming
from sparkcrypt.parquet.thrift import Struct, decode_struct
from sparkcrypt.parquet.window import Window

_UNKNOWN = -1


@dataclass(slots=True)
class FileCheck:
    """What the checks of one file's chunks share and add up; what ``layout`` has is known to be apart."""

    file: Input
    layout: Layout
    digest: ContentDigest
    modules: int = 0
    gaps: dict[tuple[Unauthenticated, str], None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Which chunk is checked.

    ``row_group`` and ``column`` are places in the footer; the ordinals of AADs are in ``key``, which is None for a
    column that is not encrypted.  ``rows`` are the row group's; ``repeated`` says that a row may have many values.
    """

    row_group: int
    column: int
    dotted: str
    rows: int
    repeated: bool
    key: ChunkKey | None

    @property
    def name(self) -> str:
        """What messages call the chunk."""
        return str(PartName(self.dotted, self.row_group))


class ChunkCheck:
    """One column chunk under check."""

    def __init__(self, shared: FileCheck, place: ChunkPlace, chunk: ColumnChunk, meta_data: ColumnMetaData) -> None:
        self._shared = shared
        self._place = place
        self._chunk = chunk
        self._meta_data = meta_data
        self._found = array("q")
        """Of each data page in turn: offset, length, first row or -1 where that cannot be told."""

    def run(self) -> None:
        """Check the chunk, whose regions the layout has, and add its content to the digest.

        Raises:
            FormatError: something contradicts the specification or something else in the file.
            VerificationError: a module does not authenticate.
        """
        place, shared = self._place, self._shared
        shared.digest.column(place.row_group, place.column, self._chunk.struct, self._meta_data.struct)
        self._check_encodings()
        self._check_pages()
        chunk = self._chunk
        offset_index = self._index(ModuleType.OFFSET_INDEX, chunk.offset_index_offset, chunk.offset_index_length)
        if offset_index is not None:
            with naming(self._what(ModuleType.OFFSET_INDEX)):
                self._check_offset_index(OffsetIndex(offset_index))
            shared.digest.offset_index(place.row_group, place.column, offset_index)
        column_index = self._index(ModuleType.COLUMN_INDEX, chunk.column_index_offset, chunk.column_index_length)
        if column_index is not None:
            with naming(self._what(ModuleType.COLUMN_INDEX)):
                self._check_column_index(ColumnIndex(column_index))
            shared.digest.column_index(place.row_group, place.column, column_index)
        if offset := self._meta_data.bloom_filter_offset:
            self.check_bloom_filter(offset, self._meta_data.bloom_filter_length)

    def _check_encodings(self) -> None:
        """Check that the list of encodings is one, if it is there: readers and rewriters go by it."""
        with naming(self._place.name):
            if ColumnMetaData.encodings.key in self._meta_data.struct:
                tuple(self._meta_data.encodings)

    def _check_pages(self) -> None:
        place, shared, name = self._place, self._shared, self._place.name
        start, end = chunk_range(self._meta_data, shared.layout.limit, name)
        key, window = place.key, Window(shared.file, start, end)
        values = rows = 0
        pages = read_plain_pages(window, name) if key is None else read_pages(key, window)
        for page in pages:
            shared.digest.page(place.row_group, place.column, page.header.struct, page.levels, page.body)
            shared.modules += page.modules
            if page.unauthenticated is not None:
                shared.gaps[page.unauthenticated, place.dotted] = None
            if page.type == PageType.DICTIONARY_PAGE:
                continue
            self._found.extend((page.start, page.end - page.start, values if not place.repeated else rows))
            values += page.values
            rows = self._rows_after(page, rows)
        self._check_counts(values, rows)
        self._check_first_page(start)

    def _rows_after(self, page: Page, rows: int) -> int:
        """Return the rows up to the end of a page; V1 pages of repeated columns do not tell theirs."""
        if page.rows is None or rows == _UNKNOWN:
            return _UNKNOWN
        if not self._place.repeated and page.rows != page.values:
            raise FormatError(f"{self._place.name}: a page has {page.rows} rows, {page.values} values; expected equal")
        return rows + page.rows

    def _check_counts(self, values: int, rows: int) -> None:
        place, name = self._place, self._place.name
        if values != self._meta_data.num_values:
            raise FormatError(f"{name}: pages hold {values} values; expected {self._meta_data.num_values}")
        if values < place.rows or (values != place.rows and not place.repeated):
            raise FormatError(f"{name}: pages hold {values} values; expected those of {place.rows} rows")
        if place.repeated and self._found and rows not in (_UNKNOWN, place.rows):
            raise FormatError(f"{name}: pages hold {rows} rows; expected {place.rows}")

    def _check_first_page(self, start: int) -> None:
        """Check that the metadata points to pages; of encrypted ones readers take the dictionary's offset literally."""
        if not self._found:
            return
        offset, first = self._meta_data.data_page_offset, self._found[0]
        if offset not in (start, first):
            raise FormatError(f"{self._place.name}: data_page_offset is {offset}; expected {first}")
        if self._place.key is not None and self._meta_data.dictionary_page_offset and first == start:
            raise FormatError(f"{self._place.name}: has a dictionary_page_offset but no dictionary; expected both")

    def _index(self, module: ModuleType, offset: int | None, length: int | None) -> Struct | None:
        place, shared = self._place, self._shared
        if offset is None and length is None:
            return None
        what = self._what(module)
        if offset is None or length is None:
            raise FormatError(f"{what} has an offset or a length; expected both")
        data = shared.file.read(offset, length, what)
        if place.key is not None:
            data = place.key.open(data, module)
            shared.modules += 1
        with naming(what):
            return decode_struct(data, origin=offset if place.key is None else 0)[0]

    def _what(self, module: ModuleType) -> str:
        return f"the {module.name.lower().replace('_', ' ')} of {self._place.name}"

    def _check_offset_index(self, index: OffsetIndex) -> None:
        found, locations = self._found, index.page_locations
        error = self._index_error()
        if 3 * len(locations) != len(found):
            raise error(f"it has {len(locations)} pages; expected {len(found) // 3}")
        before = _UNKNOWN
        for number, location in enumerate(locations):
            start, length, row = found[3 * number : 3 * number + 3]
            if (location.offset, location.compressed_page_size) != (start, length):
                raise error(
                    f"it has page {number} at offset {location.offset}, {location.compressed_page_size} bytes; "
                    f"expected {start}, {length} bytes"
                )
            first_row = location.first_row_index
            if row not in (_UNKNOWN, first_row) or not before <= first_row <= self._place.rows:
                raise error(f"it has page {number} at row {first_row}; expected {row}, and rows in order")
            before = first_row

    def _index_error(self) -> type[FormatError]:
        """Return what an index is that is not of these pages: of plaintext, an engine that decodes does without it."""
        return UnsupportedFileError if self._place.key is None else FormatError

    def _check_column_index(self, index: ColumnIndex) -> None:
        pages = len(self._found) // 3
        lists = [index.null_pages, index.min_values, index.max_values]
        if (nulls := index.null_counts) is not None:
            lists.append(nulls)
        for counted in lists:
            if len(counted) != pages:
                raise self._index_error()(f"it has {len(counted)} pages; expected {pages}")

    def check_bloom_filter(self, offset: int, length: int | None) -> None:
        """Check the Bloom filter at an offset; ``length`` is None where the metadata does not tell it."""
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
