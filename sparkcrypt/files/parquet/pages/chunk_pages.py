"""Records the data pages found in a column chunk, and checks the chunk's counts, offsets and indexes against them."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.thrift.compact import Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnIndex, ColumnMetaData, OffsetIndex
from sparkcrypt.files.source import naming

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
            with naming(str(name)):
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
                with naming(f"the offset index of {self._name}"):
                    self._check_locations(OffsetIndex(offsets))
            if bounds is not None:
                with naming(f"the column index of {self._name}"):
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
