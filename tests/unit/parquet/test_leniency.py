"""Oddities that real writers left in files and that readers read: rewritten, verified, and mended in the target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet import FOOTER_KEY, inspect_file, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.thrift.compact import Struct, Value, decode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, PageHeader, RowGroup
from tests.unit.parquet.handmade import data_page, dictionary_page, make_file, v2_page
from tests.unit.parquet.rewriting import arrow_read, clear_metadata, column_chunks, new_encryption, patch_footer
from tests.unit.parquet.writers import ALGORITHMS, Keys

Change = Callable[[Struct], None]
OFFSET_INDEX = (ColumnChunk.offset_index_offset.key, ColumnChunk.offset_index_length.key)
COLUMN_INDEX = (ColumnChunk.column_index_offset.key, ColumnChunk.column_index_length.key)
OLD_WRITER = b"parquet-mr version 1.2.8 (build 1)"
TABLE = pa.table({"text": [f"value {i % 7}" for i in range(200)], "n": list(range(200)), "list": [[1, 2], None] * 100})


def write(path: Path, **options: object) -> Path:
    """Write a file of two row groups with dictionaries and indexes."""
    settings = {"compression": "snappy", "row_group_size": 100, "write_page_index": True, **options}
    pq.write_table(TABLE, path, **settings)
    return path


def of_metadata(change: Callable[[Struct], None]) -> Change:
    """Return a change of every chunk's metadata."""

    def changed(footer: Struct) -> None:
        for chunk in column_chunks(footer):
            change(clear_metadata(chunk).struct)

    return changed


def lay(key: int, value: Value | None) -> Callable[[Struct], None]:
    """Return what sets a field, or drops it."""

    def change(struct: Struct) -> None:
        struct.pop(key, None)
        if value is not None:
            struct[key] = value

    return change


def move_data_offset(metadata: Struct) -> None:
    """Leave the dictionary page's header out of the data's offset."""
    if ColumnMetaData.dictionary_page_offset.key in metadata:
        metadata[ColumnMetaData.data_page_offset.key] = ColumnMetaData(metadata).data_page_offset - 9


def point_at_dictionary(metadata: Struct) -> None:
    """Say of the data that it begins where the dictionary does, and nothing of the dictionary."""
    found = metadata.pop(ColumnMetaData.dictionary_page_offset.key, None)
    if found is not None:
        metadata[ColumnMetaData.data_page_offset.key] = found


def dictionary_behind(metadata: Struct) -> None:
    """Name a dictionary behind its data, where readers do not look for one."""
    point_at_dictionary(metadata)
    metadata[ColumnMetaData.dictionary_page_offset.key] = ColumnMetaData(metadata).data_page_offset + 5


def of_groups(key: int, value: Value | None) -> Change:
    """Return a change of every row group's field."""

    def change(footer: Struct) -> None:
        for group in FileMetaData(footer).row_groups:
            lay(key, value)(group.struct)

    return change


def of_chunks(key: int, value: Value | None) -> Change:
    """Return a change of every chunk's field."""

    def change(footer: Struct) -> None:
        for chunk in column_chunks(footer):
            lay(key, value)(chunk.struct)

    return change


ODDITIES: dict[str, Change] = {
    "no rows in the footer": lay(FileMetaData.num_rows.key, 0),
    "no writer": lay(FileMetaData.created_by.key, None),
    "no column orders": lay(FileMetaData.column_orders.key, None),
    "data offset less a dictionary's header": of_metadata(move_data_offset),
    "data offset at the dictionary": of_metadata(point_at_dictionary),
    "dictionary behind its data": of_metadata(dictionary_behind),
    "dictionary at both": of_metadata(
        lambda metadata: (
            lay(ColumnMetaData.data_page_offset.key, metadata.get(ColumnMetaData.dictionary_page_offset.key))(metadata)
            if ColumnMetaData.dictionary_page_offset.key in metadata
            else None
        )
    ),
    "index page at 0": of_metadata(lay(ColumnMetaData.index_page_offset.key, 0)),
    "index page at -1": of_metadata(lay(ColumnMetaData.index_page_offset.key, -1)),
    "no encoding statistics": of_metadata(lay(ColumnMetaData.encoding_stats.key, None)),
    "no statistics": of_metadata(lay(ColumnMetaData.statistics.key, None)),
    "Bloom filter at 0": of_metadata(lay(ColumnMetaData.bloom_filter_offset.key, 0)),
    "no total size": of_metadata(lay(ColumnMetaData.total_uncompressed_size.key, 0)),
    "no file offset": of_chunks(ColumnChunk.file_offset.key, 0),
    "file offset -1": of_chunks(ColumnChunk.file_offset.key, -1),
    "empty file path": of_chunks(ColumnChunk.file_path.key, b""),
    "wrong place of row groups": of_groups(RowGroup.file_offset.key, 99_999_999),
    "wrong sizes of row groups": of_groups(RowGroup.total_compressed_size.key, 1),
    "no ordinals": of_groups(RowGroup.ordinal.key, None),
    "one ordinal for all": of_groups(RowGroup.ordinal.key, 0),
}


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("change", ODDITIES.values(), ids=ODDITIES.keys())
def test_oddities_are_rewritten_and_verified(tmp_path: Path, change: Change, algorithm: str | None) -> None:
    """Each is read by Arrow, rewritten whatever its target is, and equal to it by the digest; the target has none."""
    source = write(tmp_path / "source")
    patch_footer(source, change)
    assert pq.ParquetFile(source).read() == TABLE
    assert inspect_file(source).rows == 200
    encryption = None if algorithm is None else new_encryption(default=FOOTER_KEY, algorithm=algorithm)
    rewrite_file(source, tmp_path / "out", encryption=encryption)
    found = verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(source).digest)
    assert found.rows == 200
    assert arrow_read(tmp_path / "out", decrypt=algorithm is not None) == TABLE
    if algorithm is None:
        metadata = read_footer(tmp_path / "out").metadata
        assert metadata is not None and metadata.num_rows == 200
        for group in metadata.row_groups:
            for chunk in group.columns:
                assert chunk.meta_data is not None
                first = chunk.meta_data.dictionary_page_offset or chunk.meta_data.data_page_offset
                assert first <= chunk.meta_data.data_page_offset


@pytest.mark.parametrize("rows", [1, 199, 201])
def test_other_row_counts_are_refused_by_both(tmp_path: Path, rows: int) -> None:
    """A count that is none of the row groups' may tell of one that is missing."""
    source = write(tmp_path / "source")
    patch_footer(source, lay(FileMetaData.num_rows.key, rows))
    for use in (verify_file, lambda path: rewrite_file(path, tmp_path / "out")):
        with pytest.raises(FormatError, match=f"row groups hold 200 rows; expected {rows}"):
            use(source)


def leave_out_headers(source: Path, writer: bytes | None) -> None:
    """Count no dictionary page's header in any size, as parquet-mr did before 1.2.9."""
    content = source.read_bytes()

    def change(footer: Struct) -> None:
        lay(FileMetaData.created_by.key, writer)(footer)
        for chunk in column_chunks(footer):
            for key in (*OFFSET_INDEX, *COLUMN_INDEX):
                chunk.struct.pop(key, None)
            metadata = clear_metadata(chunk)
            start = metadata.dictionary_page_offset
            if start is not None:
                length = decode_struct(content[start : start + 200])[1]
                compressed, whole = metadata.total_compressed_size, metadata.total_uncompressed_size
                metadata.struct[ColumnMetaData.total_compressed_size.key] = compressed - length
                metadata.struct[ColumnMetaData.total_uncompressed_size.key] = whole - length

    patch_footer(source, change)


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("writer", [OLD_WRITER, b"parquet-mr", None], ids=str)
def test_sizes_without_the_dictionarys_header(tmp_path: Path, algorithm: str | None, writer: bytes | None) -> None:
    """The last page reaches over the chunk's end, as readers know; the target holds all of it."""
    source = write(tmp_path / "source", use_dictionary=["text"])
    leave_out_headers(source, writer)
    if writer == OLD_WRITER:
        assert pq.ParquetFile(source).read() == TABLE
    encryption = None if algorithm is None else new_encryption(default=FOOTER_KEY, algorithm=algorithm)
    rewrite_file(source, tmp_path / "out", encryption=encryption)
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(source).digest)
    assert arrow_read(tmp_path / "out", decrypt=algorithm is not None) == TABLE


def test_writers_of_today_count_their_headers(tmp_path: Path) -> None:
    """A chunk of a later writer whose last page reaches over its end is damaged."""
    source = write(tmp_path / "source", use_dictionary=["text"])
    leave_out_headers(source, b"parquet-mr version 1.2.9")
    for use in (verify_file, lambda path: rewrite_file(path, tmp_path / "out")):
        with pytest.raises(FormatError, match="expected at most"):
            use(source)


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("fields", [OFFSET_INDEX, COLUMN_INDEX], ids=["offset index", "column index"])
def test_indexes_of_others_are_left_out(tmp_path: Path, fields: tuple[int, int], algorithm: str | None) -> None:
    """Indexes that are not of the chunk's plaintext pages are no indexes: readers that filter by them lose rows."""
    pq.write_table(
        TABLE, source := tmp_path / "source", row_group_size=150, write_page_index=True, max_rows_per_page=40
    )

    def change(footer: Struct) -> None:
        found = column_chunks(footer)
        first, last = found[0].struct, found[len(found) // 2].struct
        for key in fields:
            first[key], last[key] = last[key], first[key]

    patch_footer(source, change)
    encryption = None if algorithm is None else new_encryption(default=FOOTER_KEY, algorithm=algorithm)
    result = rewrite_file(source, tmp_path / "out", encryption=encryption)
    assert [note for note in result.notes if "do not fit" in note]
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(source).digest)
    assert arrow_read(tmp_path / "out", decrypt=algorithm is not None) == TABLE


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_v2_pages_that_count_values_as_rows(tmp_path: Path, algorithm: str | None) -> None:
    """Arrow before 12 wrote as many rows as values into V2 pages of repeated columns."""
    source = tmp_path / "source"
    pq.write_table(TABLE.select(["list"]), source, data_page_version="2.0", compression="none", use_dictionary=False)
    content = bytearray(source.read_bytes())
    header, length = decode_struct(bytes(content[4:204]))
    view = PageHeader(header).data_page_header_v2
    assert view is not None and (view.num_values, view.num_rows) == (300, 200)
    wire = bytes(content[4 : 4 + length])
    rows = wire.index(b"\x15\x90\x03")  # zigzag of 200
    content[4 + rows : 4 + rows + 3] = b"\x15\xd8\x04"
    source.write_bytes(bytes(content))
    assert pq.ParquetFile(source).read() == TABLE.select(["list"])
    encryption = None if algorithm is None else new_encryption(default=FOOTER_KEY, algorithm=algorithm)
    rewrite_file(source, tmp_path / "out", encryption=encryption)
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(source).digest)


SHAPES: dict[str, bytes] = {
    "an empty row group": make_file([[[data_page()]], [[]], [[data_page()]]]),
    "nothing but empty row groups": make_file([[[]], [[]]]),
    "no row group": make_file([]),
    "pages without values": make_file([[[data_page(b"", values=0), data_page()]]]),
    "a dictionary alone": make_file([[[dictionary_page()]]]),
    "V2 pages of nothing": make_file([[[v2_page(b"", values=0)]]]),
    "no columns": make_file([[]]),
}


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("data", SHAPES.values(), ids=SHAPES.keys())
def test_files_of_little(tmp_path: Path, data: bytes, algorithm: str | None) -> None:
    """Row groups without rows, chunks without pages and files without columns say the same afterwards."""
    encryption = None if algorithm is None else new_encryption(default=FOOTER_KEY, algorithm=algorithm)
    rewrite_file(data, tmp_path / "out", encryption=encryption)
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(data).digest)


def test_rows_of_no_columns(tmp_path: Path) -> None:
    """A file of rows that have no columns keeps their number."""
    source = tmp_path / "source"
    pq.write_table(pa.table({"n": [1, 2, 3]}).select([]), source)
    rewrite_file(source, tmp_path / "out", encryption=new_encryption(default=FOOTER_KEY))
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(source).digest)
