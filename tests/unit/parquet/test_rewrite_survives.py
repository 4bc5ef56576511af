from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import FOOTER_KEY, FileEncryption, rewrite_file, verify_file
from sparkcrypt.files.parquet.file.footer import footer_of
from sparkcrypt.files.parquet.file.modules import FileCiphers, ModuleType
from sparkcrypt.files.parquet.rewrite.page_stream import Page
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk, source_chunks
from sparkcrypt.files.parquet.thrift.compact import I32, List, Struct, decode_struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnIndex,
    FileMetaData,
    OffsetIndex,
    PageLocation,
    View,
)
from sparkcrypt.files.source import open_source
from tests.unit.parquet.rewriting import (
    AMOUNT,
    NAME,
    PHONE,
    SSN,
    arrow_decryption,
    arrow_read,
    clear_metadata,
    column_chunks,
    metadata_of,
    new_encryption,
    patch_footer,
    write_plain,
)
from tests.unit.parquet.writers import ALGORITHMS, Keys, table, write_encrypted

MODES = ("encrypted", "plaintext")
BLOOMS = {"ssn": {"ndv": 300}, "id": {"ndv": 300}, "person.name": {"ndv": 300}}
SORTED = [pq.SortingColumn(0), pq.SortingColumn(1, descending=True, nulls_first=True)]


def write_rich(path: Path, **options: Any) -> Path:
    """Write a file with indexes, Bloom filters, size statistics, sorting columns and metadata of its own."""
    content = table().replace_schema_metadata({"team": "blue", "ü": "é"})
    return write_plain(path, content, bloom_filter_options=BLOOMS, sorting_columns=SORTED, **options)


def chunks_of(path: Path, keys: Keys | None = None) -> list[tuple[SourceChunk, list[Page]]]:
    """Return every chunk of a file and its pages in clear."""
    with open_source(path.read_bytes()) as file:
        ciphers = None if keys is None else FileCiphers("", keys)
        footer = footer_of(file, ciphers)
        assert footer.metadata is not None
        return [
            (chunk, [Page(page.head, page.start, page.end, bytes(page.body)) for page in chunk.page_source().pages()])
            for chunks in source_chunks(file, footer, ciphers)
            for chunk in chunks
        ]


def rewritten(tmp_path: Path, encryption: FileEncryption | None, **options: Any) -> tuple[Path, Path]:
    """Return a rich file and its rewrite."""
    plain = write_rich(tmp_path / "plain", **options)
    rewrite_file(plain, tmp_path / "out", encryption=encryption)
    return plain, tmp_path / "out"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_metadata_of_chunks(tmp_path: Path, mode: str, algorithm: str) -> None:
    """Statistics, size statistics, codec, counts and encodings of every chunk are what they were, once revealed."""
    encryption = new_encryption(SSN, NAME, PHONE, footer_mode=mode, algorithm=algorithm, columns={AMOUNT: FOOTER_KEY})
    plain, out = rewritten(tmp_path, encryption)
    before, after = metadata_of(plain), metadata_of(out, Keys())
    assert before.keys() == after.keys()
    for place, old in before.items():
        new = after[place]
        assert (old.statistics is not None and old.size_statistics is not None) or place[1] == 5
        for name in ("type", "path_in_schema", "codec", "num_values", "encodings"):
            assert getattr(new, name) == getattr(old, name)
        for name in ("statistics", "size_statistics"):
            assert _struct(getattr(new, name)) == _struct(getattr(old, name))
        assert sorted(_stats(new)) == sorted(_stats(old))
        assert (new.dictionary_page_offset is None) == (old.dictionary_page_offset is None)
        assert (new.bloom_filter_offset is None) == (old.bloom_filter_offset is None)


def _struct(view: View | None) -> Struct | None:
    return None if view is None else view.struct


def _stats(metadata: Any) -> list[tuple[int, int, int]]:
    return [
        (statistics.page_type, statistics.encoding, statistics.count) for statistics in metadata.encoding_stats or ()
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_page_locations_point_at_pages(tmp_path: Path, mode: str, algorithm: str, version: str) -> None:
    """Each location is where a page's header begins, as long as header and body are; rows and bounds stay."""
    encryption = new_encryption(SSN, NAME, footer_mode=mode, algorithm=algorithm, default=FOOTER_KEY)
    plain, out = rewritten(tmp_path, encryption, data_page_version=version)
    for (old, old_pages), (new, new_pages) in zip(chunks_of(plain), chunks_of(out, Keys()), strict=True):
        assert new.key is not None
        assert [bytes(page.body) for page in new_pages] == [bytes(page.body) for page in old_pages]
        assert [(p.head.type, p.head.values, p.head.uncompressed) for p in new_pages] == [
            (p.head.type, p.head.values, p.head.uncompressed) for p in old_pages
        ]
        was, now = (OffsetIndex(_index(chunk, ModuleType.OFFSET_INDEX)) for chunk in (old, new))
        ends = [page.start for page in new_pages[1:]] + [new.range()[1]]
        pages = [(p.start, end - p.start) for p, end in zip(new_pages, ends, strict=True) if p.head.type != 2]
        assert [(place.offset, place.compressed_page_size) for place in now.page_locations] == pages
        rows = [[place.first_row_index for place in index.page_locations] for index in (was, now)]
        assert rows[0] == rows[1] == [0, 30, 60, 90]
        assert was.unencoded_byte_array_data_bytes == now.unencoded_byte_array_data_bytes
        assert _index(old, ModuleType.COLUMN_INDEX) == _index(new, ModuleType.COLUMN_INDEX)
        assert len(ColumnIndex(_index(new, ModuleType.COLUMN_INDEX)).min_values) == 4


def _index(chunk: SourceChunk, module: ModuleType) -> Struct:
    serialised = chunk.index(module)
    assert serialised is not None
    return decode_struct(serialised)[0]


@pytest.mark.parametrize("encrypted", [True, False])
def test_bloom_filters(tmp_path: Path, encrypted: bool) -> None:
    """Header and bit set of each Bloom filter are what they were, and the length in the metadata is theirs."""
    plain, out = rewritten(tmp_path, new_encryption(SSN, columns={NAME: FOOTER_KEY}) if encrypted else None)
    data, found = out.read_bytes(), 0
    for (old, _), (new, _) in zip(chunks_of(plain), chunks_of(out, Keys() if encrypted else None), strict=True):
        assert old.bloom_filter() == new.bloom_filter()
        if (bloom := new.bloom_filter()) is not None:
            found += 1
            overhead = 0 if new.key is None else 2 * (4 + 12 + 16)
            assert new.metadata.bloom_filter_length == sum(map(len, bloom)) + overhead
            assert BloomFilterHeader(decode_struct(bloom[0])[0]).num_bytes == len(bloom[1])
            assert (bloom[1] in data) == (new.key is None)
    assert found == 9


@pytest.mark.parametrize("mode", MODES)
def test_required_fields_of_row_groups(tmp_path: Path, mode: str) -> None:
    """Each row group says its ordinal, where it begins (the first at 4) and its sizes after encryption."""
    plain, out = rewritten(tmp_path, new_encryption(("id",), SSN, PHONE, footer_mode=mode))
    with open_source(out.read_bytes()) as file:
        metadata = footer_of(file, FileCiphers("", Keys())).metadata
    assert metadata is not None
    after, begin = metadata_of(out, Keys()), 4
    for index, group in enumerate(metadata.row_groups):
        chunks = [after[index, column] for column in range(len(group.columns))]
        assert (group.ordinal, group.file_offset) == (index, begin)
        assert group.total_compressed_size == sum(chunk.total_compressed_size for chunk in chunks)
        assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)
        for chunk, found in zip(chunks, group.columns, strict=True):
            assert (chunk.dictionary_page_offset or chunk.data_page_offset) == begin == found.file_offset
            begin += chunk.total_compressed_size
    before = metadata_of(plain)
    assert all(after[place].total_compressed_size >= chunk.total_compressed_size for place, chunk in before.items())


def test_uncompressed_size_counts_headers_as_they_are(tmp_path: Path) -> None:
    """The uncompressed size of a chunk survives encryption and decryption but for what CRCs and frames take."""
    plain = write_plain(tmp_path / "plain", write_page_checksum=False)
    rewrite_file(plain, tmp_path / "a", encryption=new_encryption(default=FOOTER_KEY))
    rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=Keys())
    sizes = [
        [(chunk.total_uncompressed_size, chunk.total_compressed_size) for chunk in metadata_of(path).values()]
        for path in (plain, tmp_path / "b")
    ]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("mode", MODES)
def test_footer_of_the_file(tmp_path: Path, mode: str) -> None:
    """Writer, version, schema, key-value metadata, column orders and order of row groups stay."""
    _, out = rewritten(tmp_path, new_encryption(PHONE, footer_mode=mode))
    old = pq.ParquetFile(tmp_path / "plain")
    new = pq.ParquetFile(out, decryption_properties=arrow_decryption())
    assert new.metadata.created_by == old.metadata.created_by
    assert new.metadata.format_version == old.metadata.format_version
    assert new.schema == old.schema and new.schema_arrow == old.schema_arrow
    assert new.metadata.metadata == old.metadata.metadata
    for index in range(3):
        assert new.metadata.row_group(index).sorting_columns == tuple(SORTED)
        first = new.read_row_group(index, columns=["id"]).column("id")[0].as_py()
        assert first == 100 * index


def test_unknown_fields_of_a_newer_footer(tmp_path: Path) -> None:
    """Fields that are not known stay in footer, row group, chunk and metadata, whatever the direction.

    But for chunks of columns that a plaintext footer would show them of: see ``test_redaction_of_spark.py``.
    """
    plain, unknown = write_plain(tmp_path / "plain"), field_key(99, I32)

    def add(footer: Struct) -> None:
        footer[unknown] = 1
        for group in FileMetaData(footer).row_groups:
            group.struct[unknown] = 2
            for chunk in group.columns:
                metadata = clear_metadata(chunk)
                if metadata.path_in_schema != SSN:
                    chunk.struct[unknown] = 3
                metadata.struct[unknown] = 4

    digest = verify_file(patch_footer(plain, add)).digest
    rewrite_file(plain, tmp_path / "a", encryption=new_encryption(SSN, footer_mode="plaintext"))
    rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=Keys(), encryption=new_encryption(PHONE))
    rewrite_file(tmp_path / "b", tmp_path / "c", retrieve_key=Keys())
    verify_file(tmp_path / "a", retrieve_key=Keys(), equal_to=digest)
    verify_file(tmp_path / "c", equal_to=digest)
    assert all(chunk.struct[unknown] == 4 for chunk in metadata_of(tmp_path / "c").values())


@pytest.mark.parametrize("mode", MODES)
def test_filters_use_what_survived(tmp_path: Path, mode: str) -> None:
    """Pyarrow prunes row groups of an encrypted column by its statistics, and returns the same rows."""
    _, out = rewritten(tmp_path, new_encryption(("id",), SSN, footer_mode=mode))
    opened = pq.ParquetFile(out, decryption_properties=arrow_decryption())
    bounds = [opened.metadata.row_group(index).column(0).statistics for index in range(3)]
    assert mode == "plaintext" or [(statistics.min, statistics.max) for statistics in bounds] == [
        (0, 99),
        (100, 199),
        (200, 299),
    ]
    found = pq.read_table(out, filters=pc.field("id") == 150, decryption_properties=arrow_decryption())
    assert found.column("ssn").to_pylist() == ["000000150"]


@pytest.mark.parametrize("damage", ["location", "count", "null pages"])
def test_indexes_that_do_not_fit_are_dropped(tmp_path: Path, damage: str) -> None:
    """Indexes that disagree with the pages are left out of an encrypted target, both, and the result says so."""
    plain = write_plain(tmp_path / "plain")
    content = bytearray(plain.read_bytes())
    column = ColumnChunk.column_index_offset.key if damage == "null pages" else ColumnChunk.offset_index_offset.key
    length = ColumnChunk.column_index_length.key if damage == "null pages" else ColumnChunk.offset_index_length.key

    def change(footer: Struct) -> None:
        chunk = column_chunks(footer)[1].struct
        at, size = chunk[column], chunk[length]
        assert isinstance(at, int) and isinstance(size, int)
        index = decode_struct(bytes(content[at : at + size]))[0]
        if damage == "location":
            location = OffsetIndex(index).page_locations[2]
            location.struct[PageLocation.offset.key] = location.offset + 1
        else:
            entries = index[ColumnIndex.null_pages.key if damage == "null pages" else OffsetIndex.page_locations.key]
            assert isinstance(entries, List)
            entries.pop()
        wire = encode_struct(index)
        assert len(wire) <= size
        content[at : at + len(wire)] = wire

    patch_footer(plain, change)
    plain.write_bytes(bytes(content))
    result = rewrite_file(plain, tmp_path / "out", encryption=new_encryption(SSN))
    assert result.notes == ("column ssn in row group 0: its indexes do not fit its pages, and were left out",)
    chunks = [chunk for chunk, _ in chunks_of(tmp_path / "out", Keys()) if chunk.path == SSN]
    for index, chunk in enumerate(chunks):
        for module in (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX):
            assert (chunk.index(module) is None) == (index == 0)
    assert arrow_read(tmp_path / "out") == table()


def test_checksums_are_of_what_is_written(tmp_path: Path) -> None:
    """CRCs are right over encrypted CTR pages, gone under GCM, and right again over plaintext."""
    plain = write_plain(tmp_path / "plain")
    rewrite_file(plain, tmp_path / "ctr", encryption=new_encryption(SSN, algorithm="AES_GCM_CTR_V1"))
    rewrite_file(tmp_path / "ctr", tmp_path / "back", retrieve_key=Keys())
    rewrite_file(tmp_path / "ctr", tmp_path / "gcm", retrieve_key=Keys(), encryption=new_encryption(SSN))
    for name, keys, kept in (("ctr", Keys(), True), ("back", None, True), ("gcm", Keys(), False)):
        pages = [page for chunk, found in chunks_of(tmp_path / name, keys) if chunk.path == SSN for page in found]
        assert [page.head.crc is not None for page in pages] == [kept] * len(pages)
        assert arrow_read(tmp_path / name, decrypt=keys is not None) == table()
    back = [page.head.crc for _, found in chunks_of(tmp_path / "back") for page in found]
    assert back == [page.head.crc for _, found in chunks_of(plain) for page in found]
    content = bytearray((tmp_path / "ctr").read_bytes())
    chunk = next(chunk for chunk, _ in chunks_of(tmp_path / "ctr", Keys()) if chunk.path == SSN)
    content[chunk.range()[1] - 3] ^= 1
    (tmp_path / "ctr").write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        arrow_read(tmp_path / "ctr")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_without_checksums_get_none(tmp_path: Path, version: str) -> None:
    """A file without CRCs stays one."""
    plain = write_plain(tmp_path / "plain", write_page_checksum=False, data_page_version=version)
    rewrite_file(plain, tmp_path / "a", encryption=new_encryption(default=FOOTER_KEY, algorithm="AES_GCM_CTR_V1"))
    rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=Keys())
    for path, keys in ((tmp_path / "a", Keys()), (tmp_path / "b", None)):
        assert all(page.head.crc is None for _, pages in chunks_of(path, keys) for page in pages)


def test_v2_pages_are_said_to_be_parquet_mrs(tmp_path: Path) -> None:
    """V2 pages are written with levels in clear; the result tells it, verification tells it, decrypting undoes it."""
    plain = write_plain(tmp_path / "plain", data_page_version="2.0")
    digest = verify_file(plain).digest
    result = rewrite_file(plain, tmp_path / "a", encryption=new_encryption(SSN, ("id",)))
    assert any("V2 pages" in note and "Arrow cannot read" in note for note in result.notes)
    found = verify_file(tmp_path / "a", retrieve_key=Keys(), equal_to=digest)
    assert found.authenticated == "partial" and len(found.not_authenticated) == 2
    back = rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=Keys())
    assert len(back.unauthenticated) == 2
    verify_file(tmp_path / "b", equal_to=digest)
    assert arrow_read(tmp_path / "b", decrypt=False) == table()


def test_v2_pages_without_levels_are_for_everyone(tmp_path: Path) -> None:
    """V2 pages of required columns have no levels, so pyarrow reads them too and nothing is said against it."""
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string(), nullable=False)])
    content = pa.table({"a": range(50), "b": ["x"] * 50}, schema=schema)
    plain = write_plain(tmp_path / "plain", content, data_page_version="2.0")
    result = rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("a",), ("b",)))
    assert result.notes == ()
    assert verify_file(tmp_path / "out", retrieve_key=Keys()).authenticated == "all"
    assert arrow_read(tmp_path / "out") == content


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_v2_pages_of_arrow(tmp_path: Path, algorithm: str) -> None:
    """V2 pages that pyarrow encrypted whole are told apart, and decrypted or turned into parquet-mr's form."""
    source = write_encrypted(tmp_path / "src", algorithm=algorithm, data_page_version="2.0", write_page_index=True)
    before = verify_file(source, retrieve_key=Keys())
    result = rewrite_file(source, tmp_path / "plain", retrieve_key=Keys())
    assert bool(result.unauthenticated) == (algorithm != "AES_GCM_V1")
    verify_file(tmp_path / "plain", equal_to=before.digest)
    assert arrow_read(tmp_path / "plain", decrypt=False) == table()
    rewrite_file(source, tmp_path / "other", retrieve_key=Keys(), encryption=new_encryption(SSN, algorithm=algorithm))
    verify_file(tmp_path / "other", retrieve_key=Keys(), equal_to=before.digest)
