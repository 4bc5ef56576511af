"""Which data pages a column chunk was found to have, and whether its counts, offsets and indexes are of these pages."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from sparkcrypt.errors import FormatError
from sparkcrypt.parquet.file.source import naming
from sparkcrypt.parquet.thrift.compact import Struct
from sparkcrypt.parquet.thrift.metadata import ColumnIndex, ColumnMetaData, OffsetIndex

_UNKNOWN = -1


class ChunkPages:
    """The data pages of a chunk, told one after another; what is accepted of them is in `leniency`.

    Args:
        name: names the chunk in messages, by its text.
        rows: of its row group.
        repeated: whether a row may have many values.
        encrypted: whether the chunk is.
    """

    __slots__ = ("_encrypted", "_found", "_name", "_repeated", "_rows", "_rows_so_far", "_values")

    def __init__(self, name: object, rows: int, *, repeated: bool, encrypted: bool) -> None:
        self._name, self._rows, self._repeated, self._encrypted = name, rows, repeated, encrypted
        self._found = array("q")
        """Of each page in turn: offset, length, first row or -1 where that cannot be told."""
        self._values = self._rows_so_far = 0

    def add(self, start: int, length: int, values: int, rows: int | None) -> None:
        """Take a page: where its header begins, how long it is with it, and its counts; V1 pages tell no rows.

        Raises:
            FormatError: it has more rows than values, or fewer where each row has one.
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
        """Offset of the first page, or None."""
        return self._found[0] if self._found else None

    def check(self, metadata: ColumnMetaData, start: int) -> None:
        """Check the counts of a chunk that begins at ``start`` against its pages, and where it says that they are.

        Raises:
            FormatError: they differ.
        """
        name, values, rows = self._name, self._values, self._rows
        if ColumnMetaData.encodings.key in metadata.struct:
            with naming(str(name)):
                tuple(metadata.encodings)  # readers go by them
        if values != metadata.num_values:
            raise FormatError(f"{name}: pages hold {values} values; expected {metadata.num_values}")
        if values < rows or (values != rows and not self._repeated):
            raise FormatError(f"{name}: pages hold {values} values; expected those of {rows} rows")
        if self._repeated and self._found and self._rows_so_far not in (_UNKNOWN, rows):
            raise FormatError(f"{name}: pages hold {self._rows_so_far} rows; expected {rows}")
        if self._encrypted and self.first is not None:
            self._check_offsets(metadata, start, self.first)

    def _check_offsets(self, metadata: ColumnMetaData, start: int, first: int) -> None:
        """Check that the metadata points to pages; of encrypted ones readers take the dictionary's offset literally."""
        offset = metadata.data_page_offset
        if offset not in (start, first):
            raise FormatError(f"{self._name}: data_page_offset is {offset}; expected {first}")
        if metadata.dictionary_page_offset and first == start:
            raise FormatError(f"{self._name}: has a dictionary_page_offset but no dictionary; expected both")

    def fitting(
        self, read_offsets: Callable[[], Struct | None], read_bounds: Callable[[], Struct | None]
    ) -> tuple[Struct | None, Struct | None, FormatError | None]:
        """Return offset index and column index, each None where there is none; and why there shall be neither.

        Args:
            read_offsets: returns the offset index as it is in the file; raises what is wrong with it.
            read_bounds: returns the column index likewise.

        Raises:
            FormatError: one of an encrypted chunk cannot be read, or does not fit the pages.
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
