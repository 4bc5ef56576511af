from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError, VerificationError
from sparkcrypt.files.parquet import KeyRequest, read_footer, verify_file
from sparkcrypt.files.parquet.file.layout import Layout, Window
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.pages.chunk import ChunkKey
from sparkcrypt.files.parquet.pages.leniency import page_facts
from sparkcrypt.files.parquet.thrift.compact import I32, STRUCT, Struct, decode_struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
)
from sparkcrypt.files.parquet.verify.chunk import ChunkCheck, ChunkPlace, FileCheck, _open_body, read_pages
from sparkcrypt.files.parquet.verify.digest import ContentDigest
from sparkcrypt.files.source import Input
from tests.unit.parquet.writers import ALGORITHMS, FOOTER_MODES, KEY_BITS, Keys, table, write_encrypted, write_uniform

KEY = b"0123456789abcdef"
OWN = (("ssn",), ("amount",), ("person", "name"), ("labels", "key_value", "value"))


def first_page(path: Path, keys: Keys, column: int) -> tuple[int, int]:
    """Return where the body of a column's first page in row group 0 begins, and its length."""
    footer = read_footer(path, retrieve_key=keys)
    assert footer.metadata is not None and footer.columns is not None and footer.file_aad is not None
    crypto, chunk = footer.columns[column], footer.metadata.row_groups[0].columns[column]
    cipher = ModuleCipher(keys(KeyRequest("", crypto.path, crypto.key_metadata)))
    sealed = chunk.encrypted_column_metadata
    assert sealed is not None
    aad = module_aad(footer.file_aad, ModuleType.COLUMN_META_DATA, 0, column)
    meta_data = ColumnMetaData(decode_struct(cipher.decrypt(sealed, aad, ""))[0])
    start = meta_data.dictionary_page_offset or meta_data.data_page_offset
    kind = ModuleType.DICTIONARY_PAGE_HEADER if meta_data.dictionary_page_offset else ModuleType.DATA_PAGE_HEADER
    data = path.read_bytes()
    end = start + 4 + int.from_bytes(data[start : start + 4], "little")
    page = () if meta_data.dictionary_page_offset else (0,)
    header = cipher.decrypt(data[start:end], module_aad(footer.file_aad, kind, 0, column, *page), "")
    return end, PageHeader(decode_struct(header)[0]).compressed_page_size


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bits", KEY_BITS)
def test_arrow_files_verify(tmp_path: Path, plaintext_footer: bool, algorithm: str, bits: int) -> None:
    """Every module of every mode, algorithm and key length authenticates; pages under CTR are said not to."""
    keys = Keys()
    path = write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer, algorithm=algorithm, bits=bits)
    result = verify_file(path, retrieve_key=keys)
    assert (result.rows, result.row_groups, result.algorithm) == (300, 3, algorithm)
    assert result.authenticated == ("all" if algorithm == "AES_GCM_V1" else "partial")
    gaps = () if algorithm == "AES_GCM_V1" else ("ssn", "amount", "person.name", "labels.key_value.value")
    assert [gap.split(": ")[0] for gap in result.not_authenticated] == [f"pages of column {name}" for name in gaps]
    # a footer; of four columns in three row groups: metadata, dictionary and data page with a header each
    assert result.modules == 1 + 4 * 3 * 5
    assert ("id",) in result.plaintext_columns and not set(result.plaintext_columns) & set(OWN)
    assert [request.column for request in keys.asked] == [None, *OWN]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_indexes_are_counted(tmp_path: Path, version: str, compression: str) -> None:
    """Column and offset indexes are authenticated too, with V1 and V2 pages, whatever the codec."""
    path = write_encrypted(
        tmp_path / "f.parquet",
        write_page_index=True,
        data_page_version=version,
        compression=compression,
        max_rows_per_page=30,
    )
    result = verify_file(path, retrieve_key=Keys())
    assert result.authenticated == "all"
    pages = 1 + 4  # a dictionary and 100 rows by 30
    assert result.modules == 1 + 3 * 4 * (1 + 2 * pages + 2)


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
@pytest.mark.parametrize("options", [{}, {"aad_prefix": b"t\x00"}, {"aad_prefix": b"t\x00", "store_aad_prefix": False}])
def test_columns_under_the_footer_key_verify(tmp_path: Path, plaintext_footer: bool, options: dict[str, Any]) -> None:
    """With one key for all, stored prefix, supplied prefix or none, nothing is in clear and all authenticates."""
    path = write_uniform(tmp_path / "f.parquet", KEY, plaintext_footer=plaintext_footer, **options)
    result = verify_file(path, retrieve_key=lambda _: KEY, aad_prefix=options.get("aad_prefix"))
    assert (result.authenticated, result.plaintext_columns) == ("all", ())


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_files_of_nothing_or_nulls_verify(tmp_path: Path, algorithm: str | None, version: str) -> None:
    """No row groups, row groups of no rows (a dictionary alone), and columns of nothing but nulls or empty lists."""
    lists = pa.array([[]] * 90, pa.list_(pa.int32()))
    nulls = pa.table({"a": pa.nulls(90, pa.int32()), "s": pa.nulls(90, pa.string()), "l": lists})
    encryption = algorithm and pe.create_encryption_properties(KEY, encryption_algorithm=algorithm)
    for number, rows in enumerate((table()[:0], table()[:1], nulls)):
        path = tmp_path / str(number)
        pq.write_table(rows, path, encryption_properties=encryption, data_page_version=version, write_page_index=True)
        assert verify_file(path, retrieve_key=lambda _: KEY).rows == rows.num_rows
    pq.ParquetWriter(tmp_path / "none", nulls.schema, encryption_properties=encryption).close()
    assert verify_file(tmp_path / "none", retrieve_key=lambda _: KEY).row_groups == 0


def test_results_that_are_printed_hold_no_digest(tmp_path: Path) -> None:
    """Digests of plaintext let content be guessed, so they are not among the JSON values nor in the repr."""
    found = verify_file(write_encrypted(tmp_path / "f.parquet"), retrieve_key=Keys())
    shown = repr(found) + str(found.to_dict())
    assert len(found.digest) == 64 and not any(digest in shown for digest in (found.digest, *found.digests.values()))


def test_a_plain_file_is_never_called_authenticated(tmp_path: Path) -> None:
    """A file without encryption verifies as partial, and says why."""
    pq.write_table(table(), tmp_path / "f.parquet")
    result = verify_file(tmp_path / "f.parquet", retrieve_key=Keys())
    assert (result.authenticated, result.modules) == ("partial", 0)
    assert result.not_authenticated == ("the file is not encrypted",)


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
def test_an_encrypted_file_needs_keys(tmp_path: Path, plaintext_footer: bool) -> None:
    """Without keys nothing can be promised: an error, not a partial result."""
    with pytest.raises(ConfigError, match="pass retrieve_key"):
        verify_file(write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer))


@pytest.mark.parametrize("column", OWN)
def test_a_wrong_column_key_is_found(tmp_path: Path, column: tuple[str, ...]) -> None:
    """A key that opens another column does not open this one, which the message names."""
    keys = Keys(change=lambda request, key: key[::-1] if request.column == column else key)
    with pytest.raises(VerificationError, match=f"of column {'.'.join(column)} in row group 0 does not authenticate"):
        verify_file(write_encrypted(tmp_path / "f.parquet"), retrieve_key=keys)


def test_a_denied_column_key_reaches_the_caller(tmp_path: Path) -> None:
    """Verification does not skip what it has no key for."""

    def deny(request: KeyRequest, key: bytes) -> bytes:
        if request.column == ("amount",):
            raise KeyAccessDeniedError("no")
        return key

    with pytest.raises(KeyAccessDeniedError):
        verify_file(write_encrypted(tmp_path / "f.parquet"), retrieve_key=Keys(change=deny))


def test_a_file_of_another_prefix_is_found(tmp_path: Path) -> None:
    """A supplied prefix that is not the file's does not authenticate."""
    path = write_uniform(tmp_path / "f.parquet", KEY, aad_prefix=b"t\x00", store_aad_prefix=False)
    with pytest.raises(VerificationError, match="does not authenticate"):
        verify_file(path, retrieve_key=lambda _: KEY, aad_prefix=b"u\x00")


@pytest.mark.parametrize("place", ["length", "nonce", "body", "tag"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_altered_page_is_found_under_gcm(tmp_path: Path, algorithm: str, place: str) -> None:
    """One bit anywhere in a page is found; under CTR only its length is, and the result said so."""
    keys = Keys()
    path = write_encrypted(tmp_path / "f.parquet", algorithm=algorithm)
    start, length = first_page(path, keys, 1)
    data = bytearray(path.read_bytes())
    data[start + {"length": 0, "nonce": 4, "body": 16, "tag": length - 1}[place]] ^= 1
    if place == "length":
        with pytest.raises(FormatError, match="page"):
            verify_file(bytes(data), retrieve_key=keys)
    elif algorithm == "AES_GCM_V1":
        with pytest.raises(VerificationError, match="dictionary page of column ssn in row group 0"):
            verify_file(bytes(data), retrieve_key=keys)
    else:
        assert verify_file(bytes(data), retrieve_key=keys).authenticated == "partial"


@pytest.mark.slow
def test_every_encrypted_byte_counts(tmp_path: Path) -> None:
    """Flipping bytes all over a file under one key is always found: nothing in it is out of authentication."""
    data = write_uniform(tmp_path / "f.parquet", KEY, write_page_index=True).read_bytes()
    verify_file(data, retrieve_key=lambda _: KEY)
    for index in range(0, len(data), 37):
        changed = data[:index] + bytes((data[index] ^ 0x10,)) + data[index + 1 :]
        with pytest.raises((VerificationError, FormatError)):
            verify_file(changed, retrieve_key=lambda _: KEY)


def test_swapped_pages_are_found(tmp_path: Path) -> None:
    """Chunks of one column exchanged between row groups have the same key and length, and still do not authenticate."""
    keys = Keys()
    path = write_encrypted(tmp_path / "f.parquet", compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    start, length = first_page(path, keys, 1)
    footer = read_footer(path, retrieve_key=keys)
    assert footer.metadata is not None
    distance = data.index(bytes(data[start : start + 4]), start + length) - start  # the same length, one row group on
    data[start : start + length], data[start + distance : start + distance + length] = (
        data[start + distance : start + distance + length],
        data[start : start + length],
    )
    with pytest.raises((VerificationError, FormatError), match="column ssn in row group 0"):
        verify_file(bytes(data), retrieve_key=keys)


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
def test_the_first_magic_must_agree_with_the_last(tmp_path: Path, plaintext_footer: bool) -> None:
    """A file that begins otherwise than it ends is refused."""
    data = write_encrypted(tmp_path / "f.parquet", plaintext_footer=plaintext_footer).read_bytes()
    with pytest.raises(FormatError, match="offset 0: expected"):
        verify_file((b"PAR1" if data[:4] == b"PARE" else b"PARE") + data[4:], retrieve_key=Keys())


def test_a_file_unique_of_another_length_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose prefix could pass for part of its file-unique is refused."""
    path = write_encrypted(tmp_path / "f.parquet")
    monkeypatch.setattr("sparkcrypt.files.parquet.file.footer.FILE_UNIQUE_BYTES", 9)
    with pytest.raises(VerificationError, match="file-unique is 8 bytes; expected 9"):
        verify_file(path, retrieve_key=Keys())


class TestSignedNonsense:
    """Structures that contradict themselves, under a signature that holds."""

    def verify(self, tmp_path: Path, change: Callable[[FileMetaData, ModuleCipher, bytes], None]) -> None:
        """Verify a file whose plaintext footer was changed and signed again."""
        path = write_uniform(
            tmp_path / "f.parquet", KEY, plaintext_footer=True, write_page_index=True, row_group_size=100
        )
        footer, data, cipher = read_footer(path), path.read_bytes(), ModuleCipher(KEY)
        assert footer.metadata is not None and footer.file_aad is not None
        change(footer.metadata, cipher, footer.file_aad)
        wire = encode_struct(footer.metadata.struct)
        wire += cipher.sign(wire, module_aad(footer.file_aad, ModuleType.FOOTER))
        verify_file(
            data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + b"PAR1", retrieve_key=lambda _: KEY
        )

    def test_signing_again_is_sound(self, tmp_path: Path) -> None:
        """Without a change the file verifies, so that what the others find is their change."""
        self.verify(tmp_path, lambda *_: None)

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            (FileMetaData.num_rows.key, 301, "row groups hold 300 rows; expected 301"),
            (FileMetaData.num_rows.key, None, "FileMetaData.num_rows"),
        ],
    )
    def test_row_counts_must_add_up(self, tmp_path: Path, key: int, value: int | None, expected: str) -> None:
        """The footer's rows are those of its row groups."""
        with pytest.raises(FormatError, match=expected):
            self.verify(tmp_path, lambda metadata, *_: _set(metadata.struct, key, value))

    @pytest.mark.parametrize("size", [0, -1, 1, 2**62])
    def test_sizes_of_row_groups_are_those_of_their_chunks(self, tmp_path: Path, size: int) -> None:
        """What readers of hidden columns plan by is held against the chunks; not announcing it is no error."""
        key = RowGroup.total_compressed_size.key
        with pytest.raises(FormatError, match=f"row group 1 announces {size} compressed bytes; expected"):
            self.verify(tmp_path, lambda metadata, *_: _set(metadata.row_groups[1].struct, key, size))
        self.verify(tmp_path, lambda metadata, *_: _set(metadata.row_groups[1].struct, key, None))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            (ColumnMetaData.data_page_offset, 4),
            (ColumnMetaData.num_values, 7),
            (ColumnMetaData.statistics, Struct()),
        ],
    )
    def test_metadata_in_clear_is_that_of_the_encrypted_or_less(self, tmp_path: Path, field: Any, value: Any) -> None:
        """A plaintext footer may keep something of a column to itself, but say nothing else of it."""

        def change(metadata: FileMetaData, *_: object) -> None:
            meta_data = metadata.row_groups[0].columns[1].meta_data
            assert meta_data is not None
            _set(meta_data.struct, field.key, value)

        with pytest.raises(FormatError, match=f"differs from the encrypted in fields {field.field_id};"):
            self.verify(tmp_path, change)
        self.verify(tmp_path, lambda m, *_: _set(m.row_groups[0].columns[1].struct, ColumnChunk.meta_data.key, None))

    def test_ordinals_must_differ(self, tmp_path: Path) -> None:
        """Two row groups of the same ordinal could be exchanged."""
        with pytest.raises(FormatError, match="ordinal 0, as another has"):
            self.verify(tmp_path, lambda metadata, *_: _set(metadata.row_groups[1].struct, RowGroup.ordinal.key, 0))

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            (ColumnChunk.file_path.key, b"elsewhere", "in another file"),
            (ColumnChunk.column_index_length.key, None, "an offset or a length; expected both"),
            (ColumnChunk.offset_index_offset.key, 2**40, "expected inside"),
            (ColumnChunk.offset_index_offset.key, -1, "expected inside"),
            (ColumnChunk.offset_index_length.key, -1, "expected inside"),
            (ColumnChunk.offset_index_length.key, 2**31 - 1, "expected inside"),
        ],
    )
    def test_chunks_must_be_in_the_file(self, tmp_path: Path, key: int, value: Any, expected: str) -> None:
        """Chunks of other files, and indexes outside of this one, are refused."""
        with pytest.raises(FormatError, match=expected):
            self.verify(tmp_path, lambda metadata, *_: _set(metadata.row_groups[0].columns[0].struct, key, value))

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            (ColumnMetaData.num_values.key, 99, "pages hold 100 values; expected 99"),
            (ColumnMetaData.data_page_offset.key, 2**50, "data_page_offset is"),
            (ColumnMetaData.dictionary_page_offset.key, 3, "expected inside 4 to"),
            (ColumnMetaData.total_compressed_size.key, -(2**40), "expected inside 4 to"),
            (ColumnMetaData.total_compressed_size.key, 50, "expected at most the 1 bytes"),
        ],
    )
    def test_encrypted_column_metadata_must_fit_its_pages(
        self, tmp_path: Path, key: int, value: int, expected: str
    ) -> None:
        """Offsets, sizes and counts that the column's metadata claims are held against file and pages."""

        def change(metadata: FileMetaData, cipher: ModuleCipher, file_aad: bytes) -> None:
            chunk, aad = metadata.row_groups[0].columns[0], module_aad(file_aad, ModuleType.COLUMN_META_DATA, 0, 0)
            assert chunk.encrypted_column_metadata is not None
            struct = decode_struct(cipher.decrypt(chunk.encrypted_column_metadata, aad, ""))[0]
            struct[key] = value
            chunk.struct[ColumnChunk.encrypted_column_metadata.key] = cipher.encrypt(encode_struct(struct), aad)
            _set(chunk.struct, ColumnChunk.meta_data.key, None)  # which would contradict it

        with pytest.raises(FormatError, match=expected):
            self.verify(tmp_path, change)

    @pytest.mark.parametrize("kind", [PageType.DATA_PAGE, PageType.INDEX_PAGE, PageType.DATA_PAGE_V2, 7])
    def test_a_page_is_of_its_modules_type(self, kind: int) -> None:
        """A dictionary's module that holds another page's header is refused."""
        key = ChunkKey(ModuleCipher(KEY), b"file", "AES_GCM_V1", ("c",), 0, 0)
        header = encode_struct(Struct({field_key(number, I32): value for number, value in ((1, kind), (2, 0), (3, 0))}))
        data = key.cipher.encrypt(header, key.aad(ModuleType.DICTIONARY_PAGE_HEADER))
        with pytest.raises(FormatError, match="expected DICTIONARY_PAGE"):
            list(read_pages(key, Window(Input(io.BytesIO(data), "f", len(data)), 0, len(data))))


def v2_header(size: int, repetition: int, definition: int) -> Struct:
    """Return the header of a V2 page of no values."""
    v2 = Struct({field_key(n, I32): v for n, v in ((1, 0), (2, 0), (3, 0), (4, 0), (5, definition), (6, repetition))})
    return Struct({**{field_key(n, I32): v for n, v in ((1, 3), (2, size), (3, size))}, field_key(8, STRUCT): v2})


def _set(struct: Struct, key: int, value: Any) -> None:
    struct[key] = value
    if value is None:
        del struct[key]


class TestBloomFilters:
    """Bloom filters, whose two modules pyarrow does not encrypt."""

    def check(self, header_bytes: int = 32, swap: bool = False, cut: int = 0, length: int | None = None) -> int:
        """Verify a Bloom filter in a file of its own; return how many modules were counted."""
        key = ChunkKey(ModuleCipher(KEY), b"file", "AES_GCM_V1", ("c",), 0, 0)
        modules = [ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET]
        header = encode_struct(Struct({field_key(1, I32): header_bytes}))
        aads = [key.aad(module) for module in (reversed(modules) if swap else modules)]
        data = b"PARE" + key.cipher.encrypt(header, aads[0]) + key.cipher.encrypt(bytes(32), aads[1])
        data = data[: len(data) - cut]
        shared = FileCheck(Input(io.BytesIO(data), "f", len(data)), Layout(len(data)), ContentDigest())
        place = ChunkPlace(0, 0, "c", 0, False, key)
        check = ChunkCheck(shared, place, ColumnChunk(Struct()), ColumnMetaData(Struct()))
        check.check_bloom_filter(4, length)
        return shared.modules

    def test_header_and_bitset_are_two_modules(self) -> None:
        """Both are authenticated and counted."""
        assert self.check() == 2

    def test_a_bitset_of_another_size_is_refused(self) -> None:
        """The header's size is the bit set's."""
        with pytest.raises(FormatError, match="32 bytes; expected 64"):
            self.check(header_bytes=64)

    def test_modules_in_each_others_place_are_refused(self) -> None:
        """A bit set cannot stand for a header."""
        with pytest.raises(VerificationError, match="bloom filter header"):
            self.check(swap=True)

    def test_an_announced_length_is_the_filters(self) -> None:
        """Readers that take the announced length in one piece get the whole filter."""
        whole = 2 * (4 + 12 + 16) + len(encode_struct(Struct({field_key(1, I32): 32}))) + 32
        assert self.check(length=whole) == 2
        for length in (0, -1, whole - 1, whole + 1):
            with pytest.raises(FormatError, match=f"takes {whole} bytes; expected {length}"):
                self.check(length=length)

    @pytest.mark.parametrize("cut", [1, 60, 70, 100, 120])
    def test_a_cut_filter_is_refused(self, cut: int) -> None:
        """A filter that runs into the footer is refused."""
        with pytest.raises(FormatError, match=r"bytes that are left|expected inside"):
            self.check(cut=cut)


class TestV2Pages:
    """The two families of V2 pages, told apart by lengths."""

    def open_body(
        self, levels: int, build: Callable[[ModuleCipher, bytes], bytes], algorithm: Any = "AES_GCM_V1"
    ) -> Any:
        """Open a page body that ``build`` makes of cipher and AAD."""
        key = ChunkKey(ModuleCipher(KEY), b"file", algorithm, ("c",), 0, 0)
        body = build(key.cipher, key.aad(ModuleType.DATA_PAGE, 5))
        return _open_body(key, memoryview(body), levels, 5)[2]

    def test_arrows_pages_are_authenticated_whole(self) -> None:
        """A frame around everything is Arrow's form: nothing is left out."""
        assert self.open_body(3, lambda cipher, aad: cipher.encrypt(b"LLLvalues", aad)) is None

    def test_levels_in_clear_are_reported(self) -> None:
        """A frame behind the levels is parquet-mr's form: the levels are not authenticated."""
        assert self.open_body(3, lambda cipher, aad: b"LLL" + cipher.encrypt(b"values", aad)) == "levels"

    def test_levels_that_look_like_a_frame_do_not_hide_parquet_mrs_form(self) -> None:
        """Levels whose first bytes happen to be the frame's length are still read as levels."""

        def build(cipher: ModuleCipher, aad: bytes) -> bytes:
            sealed = cipher.encrypt(b"values", aad)
            return len(sealed).to_bytes(4, "little") + sealed

        assert self.open_body(4, build) == "levels"

    def test_pages_under_ctr_are_not_authenticated_at_all(self) -> None:
        """Under CTR both forms are reported as unauthenticated pages."""
        assert self.open_body(3, lambda cipher, _: b"LLL" + cipher.encrypt_ctr(bytes(40)), "AES_GCM_CTR_V1") == "page"
        assert self.open_body(3, lambda cipher, _: cipher.encrypt_ctr(bytes(40)), "AES_GCM_CTR_V1") == "page"

    def test_short_pages_under_ctr_are_told_apart_too(self) -> None:
        """A page that is shorter than a tag would be still shows by its frame which form it has."""
        key = ChunkKey(ModuleCipher(KEY), b"file", "AES_GCM_CTR_V1", ("c",), 0, 0)
        arrows, mrs = key.cipher.encrypt_ctr(b"LLLv"), b"LLL" + key.cipher.encrypt_ctr(b"v")
        assert _open_body(key, memoryview(arrows), 3, 0) == (b"", b"LLLv", "page")
        assert _open_body(key, memoryview(mrs), 3, 0) == (b"LLL", b"v", "page")

    @pytest.mark.parametrize("levels", [0, 3])
    def test_an_altered_page_is_found_in_either_form(self, levels: int) -> None:
        """Altered values do not authenticate as either form."""

        def build(cipher: ModuleCipher, aad: bytes) -> bytes:
            sealed = bytearray(cipher.encrypt(b"values", aad))
            sealed[-1] ^= 1
            return bytes(levels) + bytes(sealed)

        with pytest.raises(VerificationError, match="data page 5"):
            self.open_body(levels, build)

    def test_levels_longer_than_the_page_are_refused(self) -> None:
        """Lengths of levels are held against the page."""
        for repetition, definition in ((-1, 5), (5, -1), (0, 1000), (500, 500)):
            with pytest.raises(FormatError, match="bytes of levels"):
                page_facts(v2_header(50, repetition, definition), "a page", first=False)
