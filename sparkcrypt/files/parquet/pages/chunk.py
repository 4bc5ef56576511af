"""What every reader of column chunks shares: a chunk's range, key and regions, and checks of its pages."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.layout import FIRST_OFFSET, Layout
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.files.parquet.thrift.compact import Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnIndex, ColumnMetaData, OffsetIndex
from sparkcrypt.files.source import naming
from sparkcrypt.names import AES_GCM_V1, Algorithm
from sparkcrypt.schema import join_dotted

try:  # a tenth of the time; the only place that decides
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["ChunkKey", "ChunkPages", "ModuleName", "PartName", "check_crc", "chunk_range", "claim_regions", "crc32"]

Bytes: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """The cipher of one encrypted column chunk, and the chunk's place in the file."""

    cipher: ModuleCipher
    file_aad: bytes
    algorithm: Algorithm
    path: Path
    row_group: int
    column: int

    def name(self, module: ModuleType, page: int | None = None) -> str:
        """Return the name of a module in messages."""
        number = "" if page is None else f" {page}"
        kind = module.name.lower().replace("_", " ")
        return f"{kind}{number} of column {join_dotted(self.path)} in row group {self.row_group}"

    def aad(self, module: ModuleType, *page: int) -> bytes:
        """Return the AAD of a module; for data pages and their headers, ``page`` is the number among the data pages."""
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
        """Return the plaintext of a page's body under the file's algorithm; CTR authenticates nothing.

        Raises:
            FormatError: its length is wrong.
            VerificationError: it does not authenticate.
        """
        if self.algorithm == AES_GCM_V1:
            return self.open(framed, module, *page)
        return self.cipher.decrypt_ctr(framed, ModuleName(self, module, *page))


class ModuleName(NamedTuple):
    """The name of a module in messages; its text is only built if there is a message."""

    key: ChunkKey
    module: ModuleType
    page: int | None = None

    def __str__(self) -> str:
        return self.key.name(self.module, self.page)


def chunk_range(meta_data: ColumnMetaData, limit: int, what: object) -> tuple[int, int]:
    """Return the start and end of a column chunk; a chunk without pages is empty, at `FIRST_OFFSET`.

    Args:
        meta_data: of the chunk.
        limit: the offset of the footer.
        what: its ``str`` is the chunk's name in messages.

    Raises:
        FormatError: it is not between the file's first magic and its footer, or it announces a negative number of
            values.
    """
    with naming(what):
        start = meta_data.data_page_offset
        dictionary, values = meta_data.dictionary_page_offset, meta_data.num_values
        size = meta_data.total_compressed_size
    if values < 0:
        raise FormatError(f"{what} announces {values} values; expected a count")
    # Some writers set dictionary_page_offset to 0, or behind the data, if there is no dictionary.  Arrow sets
    # data_page_offset to 0 if there are no values, so that no data page follows the dictionary.
    if dictionary and (dictionary < start or (start == 0 and values == 0)):
        start = dictionary
    if not (start or size or values):
        return FIRST_OFFSET, FIRST_OFFSET
    end = start + size
    if not FIRST_OFFSET <= start <= end <= limit:
        raise FormatError(f"{what} is said to be at offset {start} to {end}; expected inside {FIRST_OFFSET} to {limit}")
    return start, end


def check_crc(crc: object, stored: memoryview, what: object) -> None:
    """Compare a page's CRC with the page's bytes as stored in the file; None if the page has no CRC.

    Raises:
        VerificationError: they differ, so the page was damaged after it was written.
    """
    if isinstance(crc, int) and crc & 0xFFFFFFFF != crc32(stored):
        raise VerificationError(
            f"{what} has a page whose CRC is not that of its bytes, so it was damaged since it was written; restore "
            "the file, or have an engine that decodes pages read it"
        )


_UNKNOWN = -1


class ChunkPages:
    """The data pages of a chunk, added one after another; `leniency` lists the irregularities that are accepted.

    Args:
        name: its ``str`` is the chunk's name in messages.
        rows: the number of rows of its row group.
        repeated: whether a row may have many values.
        encrypted: whether the chunk is encrypted.
    """

    __slots__ = ("_encrypted", "_found", "_name", "_repeated", "_rows", "_rows_so_far", "_values")

    def __init__(self, name: object, rows: int, *, repeated: bool, encrypted: bool) -> None:
        self._name, self._rows, self._repeated, self._encrypted = name, rows, repeated, encrypted
        self._found = array("q")
        """For each page in turn: its offset, its length, and its first row or -1 if that is unknown."""
        self._values = self._rows_so_far = 0

    def add(self, start: int, length: int, values: int, rows: int | None) -> None:
        """Add a page: its header's offset, its length including the header, and its counts; V1 pages have no rows.

        Raises:
            FormatError: each row has one value, and the page's counts of rows and values differ.
        """
        self._found.extend((start, length, self._rows_so_far if self._repeated else self._values))
        self._values += values
        if not self._repeated:
            if rows is not None and rows != values:
                raise FormatError(f"{self._name}: a page has {rows} rows, {values} values; expected equal")
        elif rows is None or rows == values or self._rows_so_far == _UNKNOWN:
            self._rows_so_far = _UNKNOWN
        else:
            self._rows_so_far += rows

    @property
    def first(self) -> int | None:
        """The offset of the first page, or None."""
        return self._found[0] if self._found else None

    def check(self, metadata: ColumnMetaData, start: int) -> None:
        """Check the counts and offsets in the metadata of a chunk that begins at ``start`` against its pages.

        Raises:
            FormatError: they differ.
        """
        name, values, rows = self._name, self._values, self._rows
        if ColumnMetaData.encodings.key in metadata.struct:
            with naming(name):
                tuple(metadata.encodings)  # decoded, since readers rely on them
        if values != metadata.num_values:
            raise FormatError(f"{name}: pages hold {values} values; expected {metadata.num_values}")
        if values < rows or (values != rows and not self._repeated):
            raise FormatError(f"{name}: pages hold {values} values; expected those of {rows} rows")
        if self._repeated and self._found and self._rows_so_far not in (_UNKNOWN, rows):
            raise FormatError(f"{name}: pages hold {self._rows_so_far} rows; expected {rows}")
        if self._encrypted and self.first is not None:
            self._check_offsets(metadata, start, self.first)

    def _check_offsets(self, metadata: ColumnMetaData, start: int, first: int) -> None:
        """Check that the metadata's offsets are those of pages; readers of encrypted chunks rely on them literally."""
        offset = metadata.data_page_offset
        if offset not in (start, first):
            raise FormatError(f"{self._name}: data_page_offset is {offset}; expected {first}")
        if metadata.dictionary_page_offset and first == start:
            raise FormatError(f"{self._name}: has a dictionary_page_offset but no dictionary; expected both")

    def select_fitting_indexes(
        self, read_offsets: Callable[[], Struct | None], read_bounds: Callable[[], Struct | None]
    ) -> tuple[Struct | None, Struct | None, FormatError | None]:
        """Return the offset index and the column index, each None if missing, and an error if both must be dropped.

        Args:
            read_offsets: returns the offset index as it is in the file; raises FormatError if it is invalid.
            read_bounds: returns the column index likewise.

        Raises:
            FormatError: an index of an encrypted chunk cannot be read, or does not fit the pages.
        """
        try:
            offsets, bounds = read_offsets(), read_bounds()
            if offsets is not None:
                with naming(self._name, "the offset index of "):
                    self._check_locations(OffsetIndex(offsets))
            if bounds is not None:
                with naming(self._name, "the column index of "):
                    self._check_bounds(ColumnIndex(bounds))
        except FormatError as error:
            if self._encrypted:
                raise
            return None, None, error
        return offsets, bounds, None

    def _check_locations(self, index: OffsetIndex) -> None:
        found, locations = self._found, index.page_locations
        if 3 * len(locations) != len(found):
            raise FormatError(f"it has {len(locations)} pages; expected {len(found) // 3}")
        before = _UNKNOWN
        for number, location in enumerate(locations):
            start, length, row = found[3 * number : 3 * number + 3]
            if (location.offset, location.compressed_page_size) != (start, length):
                raise FormatError(
                    f"it has page {number} at offset {location.offset}, {location.compressed_page_size} bytes; "
                    f"expected {start}, {length} bytes"
                )
            first_row = location.first_row_index
            if row not in (_UNKNOWN, first_row) or not before <= first_row <= self._rows:
                raise FormatError(f"it has page {number} at row {first_row}; expected {row}, and rows in order")
            before = first_row

    def _check_bounds(self, index: ColumnIndex) -> None:
        pages = len(self._found) // 3
        lists = [index.null_pages, index.min_values, index.max_values]
        if (nulls := index.null_counts) is not None:
            lists.append(nulls)
        for counted in lists:
            if len(counted) != pages:
                raise FormatError(f"it has {len(counted)} pages; expected {pages}")


SHOWN_CHARACTERS = 200


class PartName(NamedTuple):
    """The name of a column chunk, or of a part of it, in messages; its text is only built if there is a message.

    ``dotted`` is the column's path, which all chunks of the column share.
    """

    dotted: str
    row_group: int
    part: str = ""

    def __str__(self) -> str:
        column = self.dotted
        if len(column) > SHOWN_CHARACTERS:
            column = column[: SHOWN_CHARACTERS - 1] + "…"
        chunk = f"column {column} in row group {self.row_group}"
        return f"the {self.part} of {chunk}" if self.part else chunk


def claim_regions(layout: Layout, chunk: ColumnChunk, metadata: ColumnMetaData, name: PartName) -> None:
    """Add a chunk's pages, its indexes and the first byte of its Bloom filter, whose end is unknown, to a layout.

    Raises:
        FormatError: one of them is not inside the file's data, or an index has only an offset or only a length.
    """
    layout.add(*chunk_range(metadata, layout.limit, name), name)
    indexes = (
        ("column index", chunk.column_index_offset, chunk.column_index_length),
        ("offset index", chunk.offset_index_offset, chunk.offset_index_length),
    )
    for part, offset, length in indexes:
        if (offset is None) != (length is None):
            raise FormatError(f"the {part} of {name} has an offset or a length; expected both")
        if offset is not None and length is not None:
            layout.add(offset, offset + length, name, part)
    if offset := metadata.bloom_filter_offset:
        layout.add(offset, offset + 1, name, "Bloom filter")
