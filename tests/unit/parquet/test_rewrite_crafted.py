from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet import FOOTER_KEY, rewrite_file, verify_file
from sparkcrypt.files.parquet.rewrite.chunk import TargetChunk
from sparkcrypt.files.parquet.rewrite.page_stream import MAX_HEADER_BYTES, Bytes
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, List, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, PageHeader, RowGroup
from sparkcrypt.files.source import open_source
from tests.unit.parquet.handmade import MadePage, data_page, dictionary_page, make_file, v1_header, v2_page
from tests.unit.parquet.rewriting import column_chunks, left_over, new_encryption, patch_footer, write_plain
from tests.unit.parquet.writers import ALGORITHMS, Keys

KEY = b"0123456789abcdef"
Change = Callable[[Struct, Struct], None]
"""Changes a ``ColumnChunk`` given the first one."""


class Counting(io.BytesIO):
    """A file that counts what is read of it."""

    name = "counted"
    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return bytes."""
        data = super().read(size)
        self.taken += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Read bytes to where they shall be."""
        count = super().readinto(buffer)
        self.taken += count
        return count


def encrypt(source: Any, target: Path, **options: Any) -> Any:
    """Encrypt every column of a file."""
    return rewrite_file(source, target, encryption=new_encryption(default=FOOTER_KEY, **options))


def take_pages(first: Struct, chunk: Struct) -> None:
    """Claim another chunk's pages."""
    own, other = chunk[ColumnChunk.meta_data.key], first[ColumnChunk.meta_data.key]
    assert isinstance(own, Struct) and isinstance(other, Struct)
    for field in (ColumnMetaData.data_page_offset, ColumnMetaData.dictionary_page_offset):
        own[field.key] = other[field.key]


def take(*fields: Any) -> Change:
    """Return what claims another chunk's indexes."""

    def change(first: Struct, chunk: Struct) -> None:
        chunk.update({field.key: first[field.key] for field in fields})

    return change


def take_bloom_filter(first: Struct, chunk: Struct) -> None:
    """Claim another chunk's Bloom filter, with no length told."""
    own, other = chunk[ColumnChunk.meta_data.key], first[ColumnChunk.meta_data.key]
    assert isinstance(own, Struct) and isinstance(other, Struct)
    own[ColumnMetaData.bloom_filter_offset.key] = other[ColumnMetaData.bloom_filter_offset.key]
    own.pop(ColumnMetaData.bloom_filter_length.key, None)


CLAIMS: dict[str, Change] = {
    "pages": take_pages,
    "column indexes": take(ColumnChunk.column_index_offset, ColumnChunk.column_index_length),
    "offset indexes": take(ColumnChunk.offset_index_offset, ColumnChunk.offset_index_length),
    "Bloom filters": take_bloom_filter,
}


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS)
def test_row_groups_that_claim_the_first_ones_bytes(tmp_path: Path, claim: str) -> None:
    """Two thousand row groups that share pages, indexes or a filter are refused before these are read or written."""
    options: dict[str, Any] = {"bloom_filter_options": {"c": {"ndv": 4096}}, "row_group_size": 1}
    path = write_plain(tmp_path / "src", pa.table({"c": pa.array(range(2000), pa.int64())}), **options)

    def change(footer: Struct) -> None:
        chunks = column_chunks(footer)
        assert len(chunks) == 2000
        for chunk in chunks[1:]:
            CLAIMS[claim](chunks[0].struct, chunk.struct)

    data = patch_footer(path, change).read_bytes()
    for run in (verify_file, lambda file: rewrite_file(file, tmp_path / "out"), lambda f: encrypt(f, tmp_path / "out")):
        file = Counting(data)
        with pytest.raises(FormatError, match=r"begins at offset \d+, inside .*; expected them apart"):
            run(file)
        assert file.taken <= 2 * len(data)
    assert left_over(tmp_path) == ["src"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_encrypted_chunks_that_claim_one_place(tmp_path: Path, algorithm: str) -> None:
    """Pages that an encrypted footer names twice are refused before they are opened."""
    path = write_plain(tmp_path / "src", pa.table({"c": pa.array(range(4), pa.int64())}), row_group_size=2)

    def change(footer: Struct) -> None:
        groups: Any = footer[FileMetaData.row_groups.key]
        take_pages(groups[0][RowGroup.columns.key][0], groups[1][RowGroup.columns.key][0])

    with pytest.raises(FormatError, match="expected them apart"):
        encrypt(patch_footer(path, change), tmp_path / "out", algorithm=algorithm)
    assert left_over(tmp_path) == ["src"]


def test_bloom_filters_inside_one_another(tmp_path: Path) -> None:
    """A Bloom filter whose header claims what follows it is refused where something else begins there."""
    options: dict[str, Any] = {"bloom_filter_options": {"c": {"ndv": 4096}}}
    path = write_plain(tmp_path / "src", pa.table({"c": pa.array(range(4), pa.int64())}), row_group_size=2, **options)

    def change(footer: Struct) -> None:
        groups: Any = footer[FileMetaData.row_groups.key]
        first, second = (group[RowGroup.columns.key][0][ColumnChunk.meta_data.key] for group in groups)
        second[ColumnMetaData.bloom_filter_offset.key] = first[ColumnMetaData.bloom_filter_offset.key] + 20
        for metadata in (first, second):
            metadata.pop(ColumnMetaData.bloom_filter_length.key, None)

    data = patch_footer(path, change).read_bytes()
    for run in (verify_file, lambda source: rewrite_file(source, tmp_path / "out")):
        with pytest.raises(FormatError, match=r"the Bloom filter of column c in row group 0 of \d+ bytes; expected at"):
            run(data)
    assert left_over(tmp_path) == ["src"]


def with_field(page: MadePage, field_id: int, crc: bool = True) -> MadePage:
    """Add a field that nobody knows to a page's header, and take the known ones after the sizes away from before it."""
    header = Struct(page.header)
    if crc:
        header[PageHeader.crc.key] = zlib.crc32(page.body) - (1 << 32 if zlib.crc32(page.body) >> 31 else 0)
    known = header.pop(PageHeader.data_page_header.key)
    header[field_key(field_id, BINARY)] = b"new"
    header[PageHeader.data_page_header.key] = known
    return MadePage(header, page.body)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("field_id", [18, 19, 20, 21, 300, 0x7FFF])
@pytest.mark.parametrize("crc", [True, False])
def test_fields_of_headers_far_from_the_sizes(tmp_path: Path, algorithm: str, field_id: int, crc: bool) -> None:
    """What follows the sizes in a header may have any field id: written without its CRC it stays what it is."""
    data = make_file([[[with_field(data_page(), field_id, crc), with_field(data_page(), field_id, not crc)]]])
    digest = verify_file(data).digest
    encrypt(data, tmp_path / "there", algorithm=algorithm)
    verify_file(tmp_path / "there", retrieve_key=Keys(), equal_to=digest)
    rewrite_file(tmp_path / "there", tmp_path / "back", retrieve_key=Keys())
    verify_file(tmp_path / "back", equal_to=digest)


def test_encodings_of_another_type(tmp_path: Path) -> None:
    """Encodings that are texts are FormatError for a rewrite, and nothing but that for a verification."""
    key = ColumnMetaData.encodings.key
    data = make_file([[[data_page()]]], lambda metadata: metadata.update({key: List(BINARY, [b"PLAIN"])}))
    with pytest.raises(FormatError, match=r"ColumnMetaData\.encodings .*expected elements of type 5"):
        encrypt(data, tmp_path / "out")
    with pytest.raises(FormatError, match=r"ColumnMetaData\.encodings .*expected elements of type 5"):
        verify_file(data)
    assert left_over(tmp_path) == []


def test_empty_encodings_of_another_type(tmp_path: Path) -> None:
    """An empty list is as good as any, and a missing one is filled."""
    key = ColumnMetaData.encodings.key
    for number, encodings in enumerate((List(BINARY), List(I32), None)):

        def change(metadata: Struct, encodings: List | None = encodings) -> None:
            if encodings is None:
                metadata.pop(key)
            else:
                metadata[key] = encodings

        encrypt(make_file([[[data_page()]]], change), tmp_path / str(number))
        verify_file(tmp_path / str(number), retrieve_key=Keys())


class TestHeaderReads:
    """How much is looked at for a page header that cannot be decoded."""

    def looks(self, data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return the lengths that were looked at until the header was refused."""
        found: list[int] = []
        look = Bytes._look

        def counted(self: Bytes, length: int, what: str) -> bytes:
            found.append(length)
            return look(self, length, what)

        monkeypatch.setattr(Bytes, "_look", counted)
        with open_source(data) as file, pytest.raises(FormatError):
            Bytes(file, 0, len(data)).head(None)
        return found

    def test_one_that_can_never_be_right_is_looked_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No more is read for a header that is wrong, however much follows it."""
        for wrong in (b"\x1e\x00" * 20, b"\x15\x00\x15\x02\x15\x02\x00", b"\x1c" * 200):
            assert self.looks(wrong + bytes(100_000), monkeypatch) == [256]
            monkeypatch.undo()

    def test_one_that_is_cut_is_looked_at_again_up_to_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A header that announces more than there is is read further, and never beyond 16 MiB."""
        endless = b"\x18\xff\xff\xff\xff\x07" + bytes(MAX_HEADER_BYTES + (1 << 20))
        found = self.looks(endless, monkeypatch)
        assert found == [256 * 16**power for power in range(4)] + [MAX_HEADER_BYTES]

    def test_a_long_header_is_read(self, tmp_path: Path) -> None:
        """Statistics of megabytes in a header are carried over."""
        page = data_page()
        inner = v1_header(page)
        inner[field_key(5, 12)] = Struct({field_key(1, BINARY): b"m" * 3_000_000})
        data = make_file([[[MadePage(Struct({**page.header, PageHeader.data_page_header.key: inner}), page.body)]]])
        encrypt(data, tmp_path / "out")
        verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=verify_file(data).digest)


def test_no_place_of_a_page_is_kept_after_its_chunk(tmp_path: Path) -> None:
    """What is held of a written chunk grows with its indexes, not with its pages."""
    fields = TargetChunk.__slots__
    assert set(fields) == {"source", "seal", "metadata", "chunk", "start", "column_index", "offset_index"}


def damaged(pages: list[MadePage], at: int) -> list[MadePage]:
    """Change a byte of a page's body; its header stays."""
    page = pages[at]
    body = bytes([page.body[0] ^ 1]) + page.body[1:]
    return [*pages[:at], MadePage(page.header, body), *pages[at + 1 :]]


def checked(page: MadePage) -> MadePage:
    """Give a page the CRC of its body."""
    crc = zlib.crc32(page.body)
    header = Struct(page.header)
    header[PageHeader.crc.key] = crc - (1 << 32) if crc >> 31 else crc
    return MadePage(Struct(sorted(header.items())), page.body)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_damaged_pages_do_not_become_authentic(tmp_path: Path, algorithm: str, at: int) -> None:
    """A plaintext page of any kind whose CRC is wrong is refused as verify_file refuses it, and nothing is written."""
    pages = [checked(page) for page in (dictionary_page(), data_page(b"abcdefgh"), v2_page(b"abcdefgh"))]
    data = make_file([[damaged(pages, at)]])
    found = []
    for run in (verify_file, lambda source: encrypt(source, tmp_path / "out", algorithm=algorithm)):
        with pytest.raises(VerificationError, match=r"<bytes>: column c0 in row group 0.*whose CRC is not") as raised:
            run(data)
        found.append(str(raised.value))
    assert found[0] == found[1]
    assert left_over(tmp_path) == []
    encrypt(make_file([[pages]]), tmp_path / "out", algorithm=algorithm)


def test_damaged_ctr_pages_do_not_become_authentic(tmp_path: Path) -> None:
    """The CRC of a CTR page, which nothing authenticates, is of its encrypted bytes, and is checked."""
    pages = [checked(data_page(b"0123456789" * 50))]
    encrypt(make_file([[pages]]), tmp_path / "ctr", algorithm="AES_GCM_CTR_V1")
    data = bytearray((tmp_path / "ctr").read_bytes())
    data[300] ^= 1
    for run in (
        lambda source: verify_file(source, retrieve_key=Keys()),
        lambda source: rewrite_file(source, tmp_path / "out", retrieve_key=Keys()),
    ):
        with pytest.raises(VerificationError, match="whose CRC is not"):
            run(bytes(data))
    assert left_over(tmp_path) == ["ctr"]


def test_pages_with_a_wrong_crc_are_not_copied(tmp_path: Path) -> None:
    """Plaintext that stays plaintext is looked at before it is copied, so that what is written can be verified."""
    pages = damaged([checked(data_page(b"abcdefgh"))], 0)
    with pytest.raises(VerificationError, match="whose CRC is not"):
        rewrite_file(make_file([[pages]]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
