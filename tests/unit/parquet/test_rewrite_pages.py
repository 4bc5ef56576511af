from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    RewriteResult,
    read_footer,
    rewrite_file,
    verify_file,
)
from sparkcrypt.files.parquet.file.modules import MAX_ORDINAL
from sparkcrypt.files.parquet.rewrite.encryption import Protection
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, List, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, PageHeader
from tests.unit.parquet.handmade import (
    PLAIN,
    RLE_DICTIONARY,
    MadePage,
    data_page,
    dictionary_page,
    index_page,
    make_file,
    v1_header,
    v2_page,
)
from tests.unit.parquet.rewriting import (
    arrow_read,
    clear_metadata,
    column_chunks,
    left_over,
    metadata_of,
    new_encryption,
    new_key,
    patch_footer,
    write_plain,
)
from tests.unit.parquet.writers import ALGORITHMS, Keys

MOST = 32_768
COLUMN = ("c0",)
ENCODINGS, OFFSET = ColumnMetaData.encodings.key, ColumnMetaData.dictionary_page_offset.key
DATA = ColumnMetaData.data_page_offset.key


def encrypt(source: bytes | Path, target: Path, **options: Any) -> RewriteResult:
    """Encrypt every column of a file."""
    return rewrite_file(source, target, encryption=new_encryption(default=FOOTER_KEY, **options))


def there_and_back(source: bytes | Path, folder: Path, **options: Any) -> None:
    """Assert that a file says the same once encrypted, and once decrypted."""
    folder.mkdir(exist_ok=True)
    digest = verify_file(source).digest
    encrypt(source, folder / "there", **options)
    verify_file(folder / "there", retrieve_key=Keys(), equal_to=digest)
    rewrite_file(folder / "there", folder / "back", retrieve_key=Keys())
    verify_file(folder / "back", equal_to=digest)


def mr_has_dictionary(metadata: ColumnMetaData) -> bool:
    """Decide as parquet-mr does whether the first page is a dictionary page (ColumnChunkMetaData.hasDictionaryPage)."""
    stats = metadata.encoding_stats
    if stats is not None:
        kinds = [(counted.page_type, counted.encoding) for counted in stats if counted.count]
        used = any(kind != 2 and encoding in (2, 8) for kind, encoding in kinds)
        return used and any(kind == 2 for kind, _ in kinds)
    return not {2, 8}.isdisjoint(metadata.encodings)


def drop_offset(metadata: Struct) -> None:
    """Say nothing of a dictionary, as old writers do: data begins where it begins."""
    metadata[DATA] = metadata.pop(OFFSET, metadata[DATA])


def zero_offset(metadata: Struct) -> None:
    """Say that there is no dictionary by offset 0."""
    metadata[OFFSET] = 0


def same_offset(metadata: Struct) -> None:
    """Say that a dictionary is where data begins, though there is none."""
    metadata[OFFSET] = metadata[DATA]


def claim_dictionary(metadata: Struct) -> None:
    """List a dictionary encoding that no page has."""
    metadata[ENCODINGS] = List(I32, [RLE_DICTIONARY, PLAIN])


USED = [dictionary_page(), data_page(encoding=RLE_DICTIONARY), data_page()]
UNUSED = [dictionary_page(), data_page(), data_page()]
NONE = [data_page(), data_page()]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("pages", "change", "dictionary"),
    [
        (USED, None, True),
        (USED, drop_offset, True),
        (USED, claim_dictionary, True),
        (UNUSED, None, True),
        (UNUSED, drop_offset, True),
        (UNUSED, claim_dictionary, True),
        ([dictionary_page()], None, True),
        ([dictionary_page()], drop_offset, True),
        (NONE, None, False),
        (NONE, zero_offset, False),
        (NONE, same_offset, False),
        (NONE, claim_dictionary, False),
        ([], None, False),
        ([v2_page(), data_page()], claim_dictionary, False),
    ],
)
def test_readers_agree_on_the_first_page(
    tmp_path: Path, pages: list[MadePage], change: Any, dictionary: bool, algorithm: str
) -> None:
    """parquet-mr's and Arrow's ways to tell a dictionary page give, for the target, what the pages are."""
    source = make_file([[pages, NONE if len(pages) > 1 else []]], change)
    encrypt(source, tmp_path / "out", algorithm=algorithm)
    metadata = metadata_of(tmp_path / "out", Keys())[0, 0]
    assert mr_has_dictionary(metadata) == dictionary
    assert bool(metadata.dictionary_page_offset) == dictionary
    start = metadata.dictionary_page_offset or metadata.data_page_offset
    assert start == 4 and (metadata.data_page_offset > 4) == (dictionary and len(pages) > 1)
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(source).digest)


@pytest.mark.parametrize("encrypted", [True, False])
def test_offset_of_an_index_page_goes(tmp_path: Path, encrypted: bool) -> None:
    """No target says where an index page is: none has one, and the offset would be the source's."""
    key = ColumnMetaData.index_page_offset.key
    source = make_file([[NONE]], lambda metadata: metadata.update({key: 4}))
    rewrite_file(source, tmp_path / "out", encryption=new_encryption(COLUMN) if encrypted else None)
    assert metadata_of(tmp_path / "out", Keys())[0, 0].index_page_offset is None


def test_real_dictionaries_of_arrow(tmp_path: Path) -> None:
    """Dictionaries in use, fallen back from, and of no row are read by pyarrow in the target."""
    content = pa.table({"few": ["a", "b"] * 500, "many": [f"{n:0100d}" for n in range(1000)], "none": [None] * 1000})
    for name, table in (("full", content), ("empty", content[:0]), ("one", content[:1])):
        plain = write_plain(tmp_path / f"{name} plain", table, row_group_size=700, dictionary_pagesize_limit=2000)
        encrypt(plain, tmp_path / name)
        assert arrow_read(tmp_path / name) == table
        for metadata in metadata_of(tmp_path / name, Keys()).values():
            assert mr_has_dictionary(metadata) == bool(metadata.dictionary_page_offset)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_index_pages_are_refused(tmp_path: Path, algorithm: str) -> None:
    """An INDEX_PAGE, first or later, is UnsupportedFileError by the file's name, and leaves nothing."""
    for pages in ([index_page(), data_page()], [data_page(), index_page()]):
        (tmp_path / "src").write_bytes(make_file([[pages]]))
        with pytest.raises(UnsupportedFileError, match=r"src: .*INDEX_PAGE.*Spark engine"):
            encrypt(tmp_path / "src", tmp_path / "out", algorithm=algorithm)
    assert left_over(tmp_path) == ["src"]


@pytest.mark.slow
def test_most_data_pages(tmp_path: Path) -> None:
    """32,768 data pages in a chunk are numbered, a dictionary beside them; one more is refused."""
    pages = [dictionary_page(), *[data_page()] * MOST]
    encrypt(make_file([[pages]]), tmp_path / "out")
    assert verify_file(tmp_path / "out", retrieve_key=Keys()).modules == 1 + 2 * (1 + MOST)
    with pytest.raises(UnsupportedFileError, match="32768 data pages"):
        encrypt(make_file([[[*pages, data_page()]]]), tmp_path / "more")
    assert left_over(tmp_path) == ["out"]


@pytest.mark.parametrize("what", ["row groups", "columns"])
def test_most_row_groups_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """As many row groups or columns as can be numbered are; with one more, encryption is refused before it begins."""
    assert MAX_ORDINAL == MOST - 1
    monkeypatch.setattr("sparkcrypt.files.parquet.rewrite.file.MAX_ORDINAL", 4)

    def make(count: int) -> bytes:
        return make_file([[[data_page()]]] * count if what == "row groups" else [[[data_page()]] * count])

    rewrite_file(make(5), tmp_path / "out", encryption=new_encryption(COLUMN))
    footer = read_footer(tmp_path / "out", retrieve_key=Keys())
    assert footer.metadata is not None
    assert footer.metadata.row_groups[-1].ordinal == (4 if what == "row groups" else 0)
    encryption = new_encryption(COLUMN)
    with pytest.raises(UnsupportedFileError, match=r"<bytes>: more than 5 row groups or columns.*Spark engine"):
        rewrite_file(make(6), tmp_path / "more", encryption=encryption)
    assert left_over(tmp_path) == ["out"]
    rewrite_file(make(6), tmp_path / "plain")
    verify_file(tmp_path / "plain", equal_to=verify_file(make(6)).digest)


@pytest.mark.slow
def test_most_row_groups_in_linear_time(tmp_path: Path) -> None:
    """32,768 row groups are rewritten in seconds, and one more is refused."""
    rewrite_file(make_file([[[data_page()]]] * MOST), tmp_path / "out", encryption=new_encryption(COLUMN))
    assert verify_file(tmp_path / "out", retrieve_key=Keys()).row_groups == MOST
    with pytest.raises(UnsupportedFileError, match="32768 row groups"):
        rewrite_file(make_file([[[data_page()]]] * (MOST + 1)), tmp_path / "more", encryption=new_encryption(COLUMN))


def changed(page: MadePage, *entries: tuple[int, Any]) -> MadePage:
    """Return a page whose header has other or more fields."""
    return MadePage(Struct({**page.header, **dict(entries)}), page.body)


def _with_statistics(page: MadePage, value: bytes) -> MadePage:
    inner = v1_header(page)
    inner[0x5C] = Struct({0x18: value, 0x28: b"x"})
    return changed(page, (PageHeader.data_page_header.key, inner))


MIXED = {
    "crc now and then": [data_page(crc=True), data_page(), *(data_page(bytes([n]) * 8, crc=True) for n in range(9))],
    "statistics": [_with_statistics(data_page(), b"a"), _with_statistics(data_page(), b"b"), data_page()],
    "long statistics": [_with_statistics(data_page(), b"a" * 200_000), data_page()],
    "versions": [data_page(), v2_page(), data_page(), v2_page(b"ll" + b"\0" * 8, levels=(1, 1))],
    "values": [data_page(values=1), data_page(values=2), data_page(values=0, body=b"")],
    "sizes": [data_page(b"x" * n) for n in (0, 1, 63, 64, 127, 128, 8191, 8192, 70_000)],
    "unknown fields": [changed(data_page(), (field_key(99, I32), 7)), changed(data_page(), (field_key(99, I32), 8))],
    "unknown field alone": [changed(data_page(), (field_key(9, BINARY), b"new")), data_page()],
    "empty V2": [v2_page(b""), v2_page(b"abc", levels=(1, 2)), v2_page(b"abc", levels=(3, 0), nulls=1)],
    "like a frame": [data_page((20).to_bytes(4, "little") + b"y" * 20), v2_page((9).to_bytes(4, "little") + b"z" * 9)],
    "levels like a frame": [v2_page((36).to_bytes(4, "little") + b"q" * 4, levels=(4, 0))],
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("pages", MIXED.values(), ids=MIXED.keys())
def test_headers_of_every_kind(tmp_path: Path, pages: list[MadePage], algorithm: str) -> None:
    """Whatever differs from one page to the next, each keeps its own header."""
    there_and_back(
        make_file([[pages, [data_page(values=sum(p.values for p in pages))]]]), tmp_path, algorithm=algorithm
    )


def test_fields_of_headers_in_another_order(tmp_path: Path) -> None:
    """A header whose fields stand in another order, which Thrift allows, is read and written in the usual one."""
    page = data_page()
    entries = list(page.header.items())
    backwards = MadePage(Struct(reversed(entries)), page.body)
    encrypt(make_file([[[page, backwards, page, backwards]]]), tmp_path / "there")
    rewrite_file(tmp_path / "there", tmp_path / "back", retrieve_key=Keys())
    assert (tmp_path / "back").read_bytes()[4:].startswith(page.wire * 4)


BIG = [b"\x15\xfe\xff\xff\xff" + rest for rest in (b"\x1f", b"\xff\x1f", b"\xff\xff\x1f")]
"""Varints that are no 32-bit integers, after the header of the next field."""


@pytest.mark.parametrize("big", BIG, ids=["33 bits", "40 bits", "47 bits"])
@pytest.mark.parametrize("field", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 1])
def test_integers_beyond_32_bits(tmp_path: Path, field: int, place: int, big: bytes) -> None:
    """Sizes that are no 32-bit integers are refused on the first page and on one like the one before."""
    wire = data_page().wire
    assert wire[:7] == b"\x15\x00\x15\x10\x15\x10\x2c"
    bad = wire[: 2 * field] + big + wire[2 * field + 2 :]

    class Wire(MadePage):
        wire = bad

    pages: list[MadePage] = [data_page(), data_page()]
    pages[place] = Wire(pages[place].header, pages[place].body)
    with pytest.raises(FormatError):
        encrypt(make_file([[pages]]), tmp_path / "out")
    assert left_over(tmp_path) == []


def test_the_same_bytes_under_another_field(tmp_path: Path) -> None:
    """A header that ends as the one before it, but in another field, is not taken for the same."""
    usual = data_page().wire
    assert usual[6:7] == b"\x2c"  # the header of field 5, data_page_header

    class Wire(MadePage):
        wire = usual[:6] + b"\x3c" + usual[7:]

    with pytest.raises(FormatError, match="without data_page_header"):
        encrypt(make_file([[[data_page(), Wire(data_page().header, data_page().body)]]]), tmp_path / "out")
    assert left_over(tmp_path) == []


HOSTILE = {
    "negative size": [changed(data_page(), (PageHeader.compressed_page_size.key, -1))],
    "negative size later": [data_page(), changed(data_page(), (PageHeader.compressed_page_size.key, -1))],
    "negative uncompressed": [data_page(), changed(data_page(), (PageHeader.uncompressed_page_size.key, -1))],
    "oversize": [data_page(), changed(data_page(), (PageHeader.compressed_page_size.key, 2**31 - 1))],
    "negative values": [data_page(values=2), data_page(values=-1)],
    "levels beyond the page": [v2_page(b"abc", levels=(2, 2))],
    "negative levels": [v2_page(b"abc", levels=(-1, 2))],
    "dictionary later": [data_page(), dictionary_page()],
    "dictionary twice": [dictionary_page(), dictionary_page(), data_page()],
    "unknown type": [changed(data_page(), (PageHeader.type.key, 7))],
    "type without header": [changed(data_page(), (PageHeader.type.key, 3))],
    "cut header": [MadePage(data_page().header, b"")],
}


@pytest.mark.parametrize("pages", HOSTILE.values(), ids=HOSTILE.keys())
def test_pages_that_cannot_be(tmp_path: Path, pages: list[MadePage]) -> None:
    """Headers with lengths, counts, types or an order that cannot be are FormatError, and leave no target."""
    with pytest.raises(FormatError, match=r"<bytes>: .*expected"):
        encrypt(make_file([[pages]]), tmp_path / "out")
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (ColumnMetaData.num_values.key, 3),
        (ColumnMetaData.num_values.key, -1),
        (ColumnMetaData.total_compressed_size.key, 20),
        (ColumnMetaData.total_compressed_size.key, 2**62),
        (ColumnMetaData.total_compressed_size.key, -1),
        (DATA, 2**62),
        (DATA, -4),
        (DATA, 0),
        (ColumnMetaData.bloom_filter_offset.key, 2**40),
        (ColumnMetaData.bloom_filter_offset.key, -1),
    ],
)
@pytest.mark.parametrize("encrypted", [True, False])
def test_metadata_that_cannot_be(tmp_path: Path, key: int, value: int, encrypted: bool) -> None:
    """Offsets, sizes and counts of a chunk outside of its file are FormatError, when it is copied too."""
    source = make_file([[NONE]], lambda metadata: metadata.update({key: value}))
    with pytest.raises(FormatError, match="<bytes>: "):
        rewrite_file(source, tmp_path / "out", encryption=new_encryption(COLUMN) if encrypted else None)
    assert left_over(tmp_path) == []


def test_chunk_in_another_file(tmp_path: Path) -> None:
    """A chunk that says it lies in another file is refused."""
    (tmp_path / "src").write_bytes(make_file([[NONE]]))

    def move(footer: Struct) -> None:
        column_chunks(footer)[0].struct[ColumnChunk.file_path.key] = b"/etc/passwd"

    patch_footer(tmp_path / "src", move)
    with pytest.raises(FormatError, match="in another file"):
        rewrite_file(tmp_path / "src", tmp_path / "out")


COLUMN_INDEX = (ColumnChunk.column_index_offset.key, ColumnChunk.column_index_length.key)
OFFSET_INDEX = (ColumnChunk.offset_index_offset.key, ColumnChunk.offset_index_length.key)


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("keys", [COLUMN_INDEX, OFFSET_INDEX], ids=["column index", "offset index"])
@pytest.mark.parametrize("place", [(-20, 40), (0, 8), (-1, 2**31 - 1), (10, -1), (10, None), (None, 10)])
def test_indexes_that_cannot_be(
    tmp_path: Path, keys: tuple[int, int], place: tuple[int | None, int | None], encrypted: bool
) -> None:
    """Indexes that reach into the footer, over the file's beginning, or have half a place are FormatError."""
    plain = write_plain(tmp_path / "src", pa.table({"c0": range(10)}))
    limit = read_footer(plain).offset

    def move(footer: Struct) -> None:
        chunk = column_chunks(footer)[0].struct
        for key, value in zip(keys, place, strict=True):
            chunk.pop(key)
            if value is not None:
                chunk[key] = limit + value if key == keys[0] and value < 0 else value

    patch_footer(plain, move)
    with pytest.raises(FormatError, match=r"src: the (column|offset) index of column c0 .*(expected inside 4 to|both)"):
        rewrite_file(plain, tmp_path / "out", encryption=new_encryption(COLUMN) if encrypted else None)
    assert left_over(tmp_path) == ["src"]


@pytest.mark.parametrize("offset", [-8, 3, 10_000_000])
def test_bloom_filters_that_cannot_be(tmp_path: Path, offset: int) -> None:
    """A Bloom filter in the footer, over the file's beginning or beyond its end is FormatError."""
    plain = write_plain(tmp_path / "src", pa.table({"c0": range(10)}), bloom_filter_options={"c0": {"ndv": 10}})
    limit = read_footer(plain).offset

    def move(footer: Struct) -> None:
        metadata = clear_metadata(column_chunks(footer)[0])
        metadata.struct[ColumnMetaData.bloom_filter_offset.key] = limit - offset if offset < 0 else offset

    patch_footer(plain, move)
    with pytest.raises(FormatError, match=r"src: the Bloom filter of column c0 .* at offset .*expected inside 4 to"):
        encrypt(plain, tmp_path / "out")
    assert left_over(tmp_path) == ["src"]


@pytest.mark.parametrize("missing", [1, 1000])
def test_bloom_filter_of_another_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """A bit set that is shorter than its header says is FormatError, though both authenticate."""
    plain = write_plain(tmp_path / "src", pa.table({"c0": range(10)}), bloom_filter_options={"c0": {"ndv": 1000}})
    whole = SourceChunk.bloom_filter

    def cut(chunk: SourceChunk, end: int | None = None) -> tuple[bytes, bytes] | None:
        found = whole(chunk, end)
        return None if found is None else (found[0], found[1][:-missing])

    with monkeypatch.context() as patched:
        patched.setattr(SourceChunk, "bloom_filter", cut)
        encrypt(plain, tmp_path / "forged")
    with pytest.raises(FormatError, match=r"forged: the Bloom filter of column c0 in row group 0 has \d+ bytes"):
        rewrite_file(tmp_path / "forged", tmp_path / "out", retrieve_key=Keys())
    assert left_over(tmp_path) == ["forged", "src"]


@pytest.mark.parametrize(
    ("pages", "taken_for_dictionary"), [([data_page(b"", values=0)], 0), ([dictionary_page()], 99)]
)
def test_pages_under_the_module_of_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[MadePage], taken_for_dictionary: int
) -> None:
    """A data page sealed as a dictionary page, or the reverse, is FormatError, though it authenticates."""

    class Types:
        DICTIONARY_PAGE = taken_for_dictionary

    with monkeypatch.context() as patched:
        patched.setattr("sparkcrypt.files.parquet.rewrite.chunk_writer.PageType", Types)
        encrypt(make_file([[pages]]), tmp_path / "forged")
    with pytest.raises(FormatError, match=r"forged: .*page of type [02]"):
        rewrite_file(tmp_path / "forged", tmp_path / "out", retrieve_key=Keys())
    assert left_over(tmp_path) == ["forged"]


@pytest.mark.slow
def test_thousand_row_groups(tmp_path: Path) -> None:
    """A thousand row groups keep their order, each with its ordinal."""
    content = pa.table({"n": range(1000), "s": [str(n) for n in range(1000)]})
    pq.write_table(content, tmp_path / "plain", row_group_size=1, write_page_index=True)
    encrypt(tmp_path / "plain", tmp_path / "out", footer_mode="plaintext")
    found = verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(tmp_path / "plain").digest)
    assert found.row_groups == 1000
    assert arrow_read(tmp_path / "out") == content


@pytest.mark.parametrize("ahead", [1, 7, 64, 1000])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_borders_of_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, algorithm: str
) -> None:
    """Headers, lengths and pages that lie over the end of what was read ahead are read whole."""
    monkeypatch.setattr("sparkcrypt.files.parquet.rewrite.page_stream.READ_AHEAD_BYTES", ahead)
    monkeypatch.setattr("sparkcrypt.files.parquet.rewrite.page_stream.HEADER_BYTES", min(ahead, 64))
    pages = [page for kind in MIXED.values() for page in kind]
    columns = [pages, [data_page(values=sum(page.values for page in pages))]]
    (tmp_path / "src").write_bytes(make_file([columns] * 3))
    there_and_back(tmp_path / "src", tmp_path, algorithm=algorithm)
    there_and_back(make_file([columns] * 3), tmp_path / "bytes", algorithm=algorithm)


def test_chunks_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    """Chunks of many megabytes with pages of every size, and one page larger than all buffers, come back."""
    chance = random.Random(1)
    pages = [data_page(chance.randbytes(chance.randrange(200_000))) for _ in range(120)]
    pages.insert(50, data_page(chance.randbytes(9_000_000)))
    columns = [pages, [data_page(values=len(pages))], [dictionary_page(chance.randbytes(5_000_000)), *pages]]
    (tmp_path / "src").write_bytes(make_file([columns]))
    there_and_back(tmp_path / "src", tmp_path)
    rewrite_file(tmp_path / "src", tmp_path / "copy", encryption=new_encryption(("c1",)))
    verify_file(tmp_path / "copy", retrieve_key=Keys(), equal_to=verify_file(tmp_path / "src").digest)


@pytest.mark.parametrize("shared", [True, False])
def test_uses_of_a_key_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """A key that several columns have is refused at its limit for all of them together, GCM and CTR alike."""
    keys = [new_key("one", footer=True), new_key("two"), new_key("three")]
    columns: dict[tuple[str, ...], DataKey | Protection] = {
        ("c0",): keys[0 if shared else 1],
        ("c1",): keys[0 if shared else 2],
    }
    source = make_file([[NONE, NONE]])
    uses = 2 * (4 + 1) + 1 if shared else 4 + 1  # of two pages two modules, the metadata; the footer

    def encryption() -> FileEncryption:
        return FileEncryption(keys[0], "AES_GCM_CTR_V1", columns=columns)

    monkeypatch.setattr("sparkcrypt.files.parquet.file.modules.MAX_INVOCATIONS", uses)
    rewrite_file(source, tmp_path / "out", encryption=encryption())
    monkeypatch.setattr("sparkcrypt.files.parquet.file.modules.MAX_INVOCATIONS", uses - 1)
    with pytest.raises(FormatError, match="its limit"):
        rewrite_file(source, tmp_path / "more", encryption=encryption())
    assert left_over(tmp_path) == ["out"]
