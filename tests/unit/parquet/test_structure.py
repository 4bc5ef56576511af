from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet import read_footer, verify_file
from sparkcrypt.files.parquet.file.layout import Layout
from sparkcrypt.files.parquet.thrift.compact import encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from tests.unit.parquet.writers import table

HUGE = 2**62


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plaintext file of three row groups with indexes."""
    path = tmp_path_factory.mktemp("structure") / "plain.parquet"
    pq.write_table(table(), path, row_group_size=100, write_page_index=True, max_rows_per_page=30)
    return path


def verify(path: Path, change: Callable[[FileMetaData, int], object]) -> None:
    """Verify the file with a changed footer; ``change`` gets it and the offset that it begins at."""
    footer, data = read_footer(path), path.read_bytes()
    assert footer.metadata is not None
    change(footer.metadata, footer.offset)
    wire = encode_struct(footer.metadata.struct)
    verify_file(data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + b"PAR1")


def chunk_of(metadata: FileMetaData, column: int = 0) -> ColumnMetaData:
    """Return the metadata of a chunk of the first row group."""
    found = metadata.row_groups[0].columns[column].meta_data
    assert found is not None
    return found


def test_an_unchanged_file_passes(plain: Path) -> None:
    """What the other tests find is their change."""
    verify(plain, lambda *_: None)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (ColumnMetaData.type.key, 6, "column id in row group 0 has type 6; expected 2, as its leaf of the schema"),
        (ColumnMetaData.num_values.key, HUGE, "pages hold 100 values; expected 4611686018427387904"),
        (ColumnMetaData.num_values.key, -1, "announces -1 values; expected a count"),
        (ColumnMetaData.data_page_offset.key, -5, "expected inside 4 to"),
        (ColumnMetaData.data_page_offset.key, 0, "expected inside 4 to"),
        (ColumnMetaData.data_page_offset.key, 3, "expected inside 4 to"),
        (ColumnMetaData.dictionary_page_offset.key, HUGE, "pages hold|expected"),
        (ColumnMetaData.dictionary_page_offset.key, -1, "expected inside 4 to"),
        (ColumnMetaData.total_compressed_size.key, HUGE, "expected inside 4 to"),
        (ColumnMetaData.total_compressed_size.key, -1, "expected inside 4 to"),
        (ColumnMetaData.total_compressed_size.key, 0, "expected inside 4 to|hold 0 values"),
        (ColumnMetaData.bloom_filter_offset.key, HUGE, "the Bloom filter of column id .* expected inside"),
        (ColumnMetaData.bloom_filter_offset.key, -1, "the Bloom filter of column id .* expected inside"),
        (ColumnMetaData.bloom_filter_offset.key, 4, r"expected|Bloom"),
    ],
)
def test_metadata_must_fit_file_and_pages(plain: Path, key: int, value: int, expected: str) -> None:
    """Offsets, sizes and counts outside of the file, or other than the pages', are refused by file and expectation."""
    with pytest.raises(FormatError, match=expected) as raised:
        verify(plain, lambda metadata, _: chunk_of(metadata).struct.update({key: value}))
    assert str(raised.value).startswith("<bytes>: ")


def test_a_chunk_in_the_footer_is_refused(plain: Path) -> None:
    """A chunk that points at the footer, or reaches into it, is refused."""

    def change(metadata: FileMetaData, start: int) -> None:
        struct = chunk_of(metadata).struct
        del struct[ColumnMetaData.dictionary_page_offset.key]
        struct[ColumnMetaData.data_page_offset.key] = start

    with pytest.raises(FormatError, match="expected inside 4 to"):
        verify(plain, change)


def test_two_chunks_in_one_place_are_refused(plain: Path) -> None:
    """A chunk that another one of the same shape stands for twice is refused, however well it reads."""
    path = plain.parent / "twice.parquet"
    rows = pa.table({name: pa.array(range(100), pa.int64()) for name in ("a", "b")})
    pq.write_table(rows, path)

    def change(metadata: FileMetaData, _: int) -> None:
        first, second = chunk_of(metadata, 0), chunk_of(metadata, 1)
        for field in (ColumnMetaData.data_page_offset, ColumnMetaData.dictionary_page_offset):
            second.struct[field.key] = first.struct[field.key]

    with pytest.raises(FormatError, match=r"column [ab] in row group 0 begins at offset 4, inside column [ab]"):
        verify(path, change)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (ColumnChunk.column_index_offset.key, 4, "column index of column id"),
        (ColumnChunk.column_index_offset.key, HUGE, "expected inside"),
        (ColumnChunk.column_index_length.key, 2**31 - 1, "expected inside"),
        (ColumnChunk.column_index_length.key, -7, "expected inside"),
        (ColumnChunk.offset_index_offset.key, 4, "offset index|page_locations"),
        (ColumnChunk.offset_index_length.key, None, "an offset or a length; expected both"),
        (ColumnChunk.file_path.key, b"other.parquet", "in another file"),
    ],
)
def test_indexes_must_fit(plain: Path, key: int, value: Any, expected: str) -> None:
    """Indexes outside of the data, half announced, or where something else lies are refused."""

    def change(metadata: FileMetaData, _: int) -> None:
        struct = metadata.row_groups[0].columns[0].struct
        struct[key] = value
        if value is None:
            del struct[key]

    with pytest.raises(FormatError, match=expected):
        verify(plain, change)


@pytest.mark.parametrize("rows", [-1, 99, 101, HUGE])
def test_rows_must_agree_with_pages(plain: Path, rows: int) -> None:
    """A row group's rows are those of its columns, even where the footer's sum agrees with the row groups."""

    def change(metadata: FileMetaData, _: int) -> None:
        metadata.row_groups[0].struct[RowGroup.num_rows.key] = rows
        metadata.struct[FileMetaData.num_rows.key] = 200 + rows

    with pytest.raises(FormatError, match="rows"):
        verify(plain, change)


@pytest.mark.slow
def test_no_altered_byte_of_a_plaintext_page_goes_unnoticed(plain: Path) -> None:
    """Each byte of headers and pages that is changed is refused, or is another content."""
    data, known = plain.read_bytes(), verify_file(plain).digest
    for at in range(4, 400):
        changed = bytes(data[:at]) + bytes((data[at] ^ 0x10,)) + bytes(data[at + 1 :])
        try:
            assert verify_file(changed).digest != known
        except FormatError as error:
            assert "expected" in str(error)


def test_regions_that_touch_are_apart() -> None:
    """One region may end where the next begins, and empty ones lie anywhere; one byte more is refused."""
    layout = Layout(100)
    for start, end in ((50, 100), (4, 50), (50, 50), (20, 20)):
        layout.add(start, end, "x")
    layout.check_apart()
    layout.add(49, 51, "y")
    with pytest.raises(FormatError, match="begins at offset 49, inside x"):
        layout.check_apart()
    for start, end in ((3, 10), (90, 101), (10, 9), (-(2**70), 5), (4, 2**70)):
        with pytest.raises(FormatError, match="expected inside 4 to 100"):
            layout.add(start, end, "z")


def test_oversize_claims_cost_neither_time_nor_memory(tmp_path: Path) -> None:
    """On a file of megabytes, whatever is claimed of its sizes, less than twice its size is held, and not for long."""
    path = tmp_path / "big.parquet"
    rows = pa.table({name: pa.array([(i * 7919 + k) % 1000003 for i in range(150_000)]) for k, name in enumerate("ab")})
    pq.write_table(rows, path, compression="none", use_dictionary=False, data_page_size=64_000, write_page_index=True)
    footer, data = read_footer(path), path.read_bytes()
    assert len(data) > 2_000_000 and footer.metadata is not None
    fields: list[tuple[Any, int]] = [
        *((ColumnMetaData, field.key) for field in (ColumnMetaData.num_values, ColumnMetaData.total_compressed_size)),
        *((ColumnMetaData, field.key) for field in (ColumnMetaData.data_page_offset, ColumnMetaData.statistics)),
        *((ColumnChunk, field.key) for field in (ColumnChunk.offset_index_length, ColumnChunk.column_index_offset)),
    ]
    changed = tmp_path / "changed.parquet"
    for view, key in fields:
        for value in (2**31 - 1, -(2**31), len(data), len(data) // 2):
            fresh = read_footer(path).metadata
            assert fresh is not None
            struct = chunk_of(fresh).struct if view is ColumnMetaData else fresh.row_groups[0].columns[0].struct
            if not isinstance(struct[key], int):
                continue
            struct[key] = value
            wire = encode_struct(fresh.struct)
            changed.write_bytes(data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + b"PAR1")
            started = time.process_time()
            tracemalloc.start()
            try:
                with pytest.raises(FormatError):
                    verify_file(changed)
                assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
            finally:
                tracemalloc.stop()
            assert time.process_time() - started < 10
