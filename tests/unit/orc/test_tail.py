"""The end of an ORC file, and the fields that it is made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow.orc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc import inspect_orc, is_orc, read_tail
from sparkcrypt.files.orc.file.compression import MAX_BLOCK_BYTES, Compression, inflate_lz4
from sparkcrypt.files.orc.file.protobuf import Message, decode, encode_packed, message
from sparkcrypt.files.orc.file.schema import read_columns
from sparkcrypt.files.orc.file.stripe import read_stripe_footer
from sparkcrypt.files.orc.file.tail import STRIPES
from sparkcrypt.files.source import open_source
from sparkcrypt.schema import join_dotted
from tests.fuzz.attempt import deadline
from tests.unit.cli.conftest import run
from tests.unit.orc.corpus import CODECS, NAMES, file
from tests.unit.orc.rewriting import patched


@pytest.mark.parametrize("name", NAMES)
def test_the_end_is_what_another_reader_sees(name: str) -> None:
    """Rows, stripes and codec agree with ORC's C++ reader; the footer is written back byte for byte."""
    tail, other = read_tail(file(name)), pyarrow.orc.ORCFile(file(name))
    assert (tail.rows, len(tail.stripes)) == (other.nrows, other.nstripes)
    assert tail.compression.codec.replace("none", "uncompressed").upper() == str(other.compression)
    assert tail.stride == other.row_index_stride
    with open_source(file(name)) as opened:
        (length,) = opened.read(opened.size - 1, 1, "the postscript's length")
        raw = opened.read(tail.footer_offset, opened.size - 1 - length - tail.footer_offset, "the footer")
        assert tail.compression.inflate(raw, "the footer") == tail.footer.encode()
        for stripe in tail.stripes:
            footer = read_stripe_footer(opened, tail, stripe)
            assert {stream.column for stream in footer.streams} <= set(range(len(tail.columns)))


def test_nested_columns_are_named_as_orc_names_them() -> None:
    """Elements, keys, values and variants of unions have names of their own."""
    found = {join_dotted(path): column.kind for path, column in inspect_orc(file("java_types")).columns.items()}
    assert {name: found[name] for name in ("li._elem.num", "kv._key", "kv._value", "un.0", "st.deep.z", "tz")} == {
        "li._elem.num": "string",
        "kv._key": "string",
        "kv._value": "int",
        "un.0": "int",
        "st.deep.z": "string",
        "tz": "timestamp_instant",
    }


@pytest.mark.parametrize("codec", CODECS)
def test_encrypted_columns_are_told_without_a_key(codec: str) -> None:
    """Key, algorithm, mask and root of each; what is not encrypted has none."""
    found = {join_dotted(path): column for path, column in inspect_orc(file(f"java_{codec}_encrypted")).columns.items()}
    assert {
        name: (column.key_id, column.algorithm, column.mask) for name, column in found.items() if column.encrypted
    } == {
        "name": ("pii", "AES_CTR_128", "nullify"),
        "st.y": ("pii", "AES_CTR_128", "nullify"),
        "ts": ("pii", "AES_CTR_128", "nullify"),
        "dec": ("fin", "AES_CTR_256", "nullify"),
        "li._elem.n": ("fin", "AES_CTR_256", "nullify"),
    }
    assert found["st.y"].root == ("st", "y")
    assert inspect_orc(file("java_sha256")).columns[("name",)].mask == "sha256"


def test_inspect_tells_the_format_by_its_magic(tmp_path: Path) -> None:
    """A folder may hold both formats; names do not matter."""
    (tmp_path / "a.parquet").write_bytes(file("java_zlib_encrypted").read_bytes())
    (found,) = run("inspect", tmp_path, "--json").document
    assert (found["format"], found["rows"], found["stripes"]) == ("orc", 2500, 2)
    assert found["columns"]["dec"] == {
        "kind": "decimal",
        "encrypted": True,
        "key_id": "fin",
        "key_version": 1,
        "algorithm": "AES_CTR_256",
        "mask": "nullify",
        "root": "dec",
    }
    text = run("inspect", tmp_path).output
    assert "ORC, columns encrypted, zlib, by ORC Java 2.3.0; 2,500 rows in 2 stripes" in text


@pytest.mark.parametrize("size", [0, 3, 5, 100])
def test_a_cut_file_is_one_error(size: int) -> None:
    """It says what was expected."""
    with pytest.raises(FormatError, match="expected"):
        read_tail(file("java_zlib").read_bytes()[:size])


def test_what_is_no_orc_file_is_told() -> None:
    """By its first bytes."""
    assert not is_orc(b"PAR1 and more")
    with pytest.raises(FormatError, match="offset 0: expected ORC"):
        read_tail(b"PAR1 and more")


@pytest.mark.parametrize(("number", "value"), [(1, 1 << 40), (1, 3), (2, 0), (5, 9), (6, 0)])
def test_stripes_that_cannot_be_are_refused(number: int, value: int) -> None:
    """Outside of the file, over another, of other sizes than their streams, with other rows, or without an id."""
    data = file("java_zlib_encrypted").read_bytes()
    tail = read_tail(data)
    stripes = tail.footer.messages(STRIPES, "a stripe")
    changed = [stripes[0], stripes[1].replace_field(number, [value])]
    made = patched(
        tail, data, tail.footer.replace_field(STRIPES, [stripe_message.encode() for stripe_message in changed])
    )
    with pytest.raises(FormatError, match="expected"), open_source(made) as opened:
        found = read_tail(made)
        for stripe in found.stripes:
            read_stripe_footer(opened, found, stripe)


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ([], "no types"),
        ([(12, [1], ["a"])], "column 1 is named"),
        ([(12, [0], ["a"])], "pre-order"),
        ([(12, [2, 1], ["a", "b"]), (3, [], []), (3, [], [])], "pre-order"),
        ([(12, [1], ["a"]), (3, [], []), (3, [], [])], "of which 2 are below the root"),
        ([(12, [1], []), (3, [], [])], "expected 0"),
        ([(99, [], [])], "kind 99"),
        ([*[(10, [n + 1], []) for n in range(150)], (3, [], [])], "nest too deep"),
    ],
)
def test_types_that_are_no_tree_are_refused(types: list[tuple[int, list[int], list[str]]], told: str) -> None:
    """Cycles, strays, other orders, and names that do not fit."""
    made = [
        message("a type", (1, kind), *((2, child) for child in below), *((3, name.encode()) for name in names))
        for kind, below, names in types
    ]
    with pytest.raises(FormatError, match=told):
        read_columns(made)


def test_a_message_that_grows_without_measure_is_refused() -> None:
    """Chunks that are tiny and become much are stopped before they are all there."""
    zlib = Compression("zlib", 1 << 23)
    chunk = zlib.deflate(bytes(1 << 23))
    assert zlib.inflate(chunk, "it") == bytes(1 << 23)
    with pytest.raises(FormatError, match="become more than"):
        zlib.inflate(chunk * 6, "it")
    with pytest.raises(FormatError, match="a chunk holds"):
        Compression("zlib", 1000).inflate(chunk, "it")


def test_the_largest_block_fits_its_header() -> None:
    """A full block of the largest size that does not compress is written as chunks whose length a header can hold."""
    zlib, content = Compression("zlib", MAX_BLOCK_BYTES), random.Random(7).randbytes(MAX_BLOCK_BYTES)
    assert b"".join(zlib.chunks(zlib.deflate(content), "it")) == content


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_deflated_comes_back(codec: str) -> None:
    """Content of several chunks, of one, and none."""
    compression = Compression(codec, 1000)
    for content in (b"", b"a", bytes(range(250)) * 17):
        assert compression.inflate(compression.deflate(content), "it") == content


@pytest.mark.parametrize("block", [b"", b"\xf0", b"\x10", b"\x00\x01", b"\x10a\x05\x00\x00", b"\x10a\x00\x00\x00"])
def test_damaged_lz4_is_a_value_error(block: bytes) -> None:
    """Lengths and distances that reach outside are seen."""
    with pytest.raises(ValueError):
        inflate_lz4(block, 100)


def wide(columns: int, roots: Sequence[int]) -> bytes:
    """Return a file without stripes of so many columns, with variants of these roots."""
    types = [message("a type", (1, 12), (2, encode_packed(range(1, columns))), *((3, b"c"),) * (columns - 1))]
    types += [message("a type", (1, 3))] * (columns - 1)
    variants = [message("a variant", (1, root), (3, b"wrapped")).encode() for root in roots]
    key = message("a key", (1, b"pii"), (3, 1)).encode()
    mask = message("a mask", (1, b"nullify"), (3, encode_packed(roots))).encode()
    encryption = message("encryption", (1, mask), (2, key), *((3, variant) for variant in variants)).encode()
    footer = message(
        "a footer", *((4, column_type.encode()) for column_type in types), (6, 0), (10, encryption)
    ).encode()
    postscript = message("a postscript", (1, len(footer)), (8000, b"ORC")).encode()
    return b"ORC" + footer + postscript + bytes((len(postscript),))


@pytest.mark.slow
def test_many_variants_of_many_columns_take_no_more_than_their_size() -> None:
    """Each column is looked up, not searched for; variants that lie over each other again and again are refused."""
    with deadline(6):
        assert inspect_orc(wide(12_000, range(1, 12_000))).encrypted
        with pytest.raises(FormatError, match="expected at most 16 times the 12000"):
            read_tail(wide(12_000, [0] * 12_000))


def test_what_is_wrong_with_a_summary_names_the_file() -> None:
    """A text that is told only there too."""
    data = file("java_zlib").read_bytes()
    tail = read_tail(data)
    with pytest.raises(FormatError, match="<bytes>: the footer: field 12 is not UTF-8"):
        inspect_orc(patched(tail, data, tail.footer.replace_field(12, [b"\xff"])))


U64 = (1 << 64) - 1


def test_known_and_unknown_fields_are_written_back_as_they_were() -> None:
    """Varints, fixed widths and bytes, in their order, known to nobody or not."""
    wire = b"\x08\x96\x01\x12\x03abc\x19" + bytes(range(8)) + b"\x25abcd\xaa\xf4\x03\x01z"
    found = decode(wire, "a message")
    assert found.encode() == wire
    assert (found.integer(1), found.data(2), found.data(8005)) == (150, b"abc", b"z")
    assert sorted({key >> 3 for key, _ in found.fields}) == [1, 2, 3, 4, 8005]


@given(st.lists(st.tuples(st.integers(1, 1 << 28), st.one_of(st.integers(0, U64), st.binary(max_size=9)))))
def test_what_is_encoded_is_decoded(fields: list[tuple[int, int | bytes]]) -> None:
    """Any message comes back."""
    made = message("a message", *fields)
    assert decode(made.encode(), "a message") == made


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_one_error(data: bytes) -> None:
    """Nothing else than `FormatError` is raised."""
    try:
        found = decode(data, "a message")
    except FormatError as error:
        assert "expected" in str(error)
    else:
        assert decode(found.encode(), "again") == Message("again", found.fields)


@pytest.mark.parametrize(
    ("wire", "told"),
    [
        (b"\x12\x05abc", "5 bytes; expected at most the 3 left"),
        (b"\x08", "ends inside a varint"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "too large"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x00\x01", "field number 0"),
        (b"\x08\x01" * 9, "too many fields"),
    ],
)
def test_damaged_bytes_are_told(wire: bytes, told: str) -> None:
    """Each damage says what was expected."""
    with pytest.raises(FormatError, match=told):
        decode(wire, "a message", max_fields=8)


def test_a_field_that_stands_twice_is_refused() -> None:
    """Some readers take the first, some the last."""
    with pytest.raises(FormatError, match="field 1 stands twice"):
        decode(b"\x08\x01\x08\x02", "a message").integer(1)


def test_repeated_integers_are_read_packed_and_not() -> None:
    """Both forms may even stand in one message; larger ones than the field has bits are refused."""
    found = decode(b"\x0a\x03\x01\x96\x01\x08\x07", "a message")
    assert found.integers(1) == [1, 150, 7]
    assert encode_packed([1, 150]) == b"\x01\x96\x01"
    with pytest.raises(FormatError, match="larger integer"):
        message("a message", (1, 1 << 40)).integers(1)


def test_a_replaced_field_keeps_its_place() -> None:
    """New values stand where the first old one stood, others stay."""
    found = message("a message", (1, 1), (2, b"a"), (3, 3), (2, b"b")).replace_field(2, [b"x", b"y", b"z"])
    assert found == message("a message", (1, 1), (2, b"x"), (2, b"y"), (2, b"z"), (3, 3))
    assert found.replace_field(9, [4]).integer(9) == 4
    assert not found.replace_field(1, []).has(1)
