"""Structs of Thrift: decoded, bounded, and read through a window."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file import layout as window_module
from sparkcrypt.files.parquet.file.layout import Window
from sparkcrypt.files.parquet.thrift import compact as thrift
from sparkcrypt.files.parquet.thrift.compact import BINARY, List, Map, Struct, decode_struct, encode_struct, field_key
from sparkcrypt.files.source import Input

_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    thrift.BYTE: st.integers(-(2**7), 2**7 - 1),
    thrift.I16: st.integers(-(2**15), 2**15 - 1),
    thrift.I32: st.integers(-(2**31), 2**31 - 1),
    thrift.I64: st.integers(-(2**63), 2**63 - 1),
    thrift.DOUBLE: st.binary(min_size=8, max_size=8),
    thrift.BINARY: st.binary(max_size=200),
    thrift.BOOL: st.booleans(),
    thrift.UUID: st.binary(min_size=16, max_size=16),
}


def _containers(children: st.SearchStrategy[tuple[int, Any]]) -> st.SearchStrategy[tuple[int, Any]]:
    scalars = st.sampled_from(sorted(_SCALARS))
    lists = scalars.flatmap(lambda kind: st.lists(_SCALARS[kind], max_size=20).map(lambda values: List(kind, values)))
    nested = st.lists(children.filter(lambda pair: pair[0] == thrift.STRUCT).map(lambda pair: pair[1]), max_size=3).map(
        lambda values: List(thrift.STRUCT, values)
    )
    maps = st.tuples(scalars, scalars).flatmap(
        lambda kinds: st.lists(st.tuples(_SCALARS[kinds[0]], _SCALARS[kinds[1]]), min_size=1, max_size=5).map(
            lambda pairs: Map(*kinds, pairs)
        )
    )
    fields = st.dictionaries(st.integers(-5, 32767), children, max_size=8).map(
        lambda items: Struct({field_key(number, kind): value for number, (kind, value) in items.items()})
    )
    return st.one_of(
        lists.map(lambda value: (thrift.LIST, value)),
        lists.map(lambda value: (thrift.SET, value)),
        nested.map(lambda value: (thrift.LIST, value)),
        maps.map(lambda value: (thrift.MAP, value)),
        fields.map(lambda value: (thrift.STRUCT, value)),
    )


def _tagged(kind: int) -> st.SearchStrategy[tuple[int, Any]]:
    return _SCALARS[kind].map(lambda value: (kind, value))


_LEAVES = st.sampled_from(sorted(_SCALARS)).flatmap(_tagged)
_VALUES = st.recursive(_LEAVES, _containers, max_leaves=12)
STRUCTS = st.dictionaries(st.integers(-300, 32767), _VALUES, max_size=10).map(
    lambda items: Struct({field_key(number, kind): value for number, (kind, value) in items.items()})
)


@pytest.mark.slow
@given(STRUCTS, st.binary(max_size=5))
@settings(max_examples=300)
def test_any_struct_survives_a_round_trip_in_order(struct: Struct, rest: bytes) -> None:
    """What is encoded decodes to the same fields in the same order, and what follows is left alone."""
    wire = encode_struct(struct)
    decoded, end = decode_struct(wire + rest)
    assert (decoded, list(decoded), end) == (struct, list(struct), len(wire))
    assert encode_struct(decoded) == wire


@given(st.binary(max_size=300))
@settings(max_examples=500)
def test_any_bytes_decode_or_are_refused_with_an_offset(data: bytes) -> None:
    """Random bytes give a struct or a FormatError that names an offset and an expectation, never anything else."""
    try:
        struct, end = decode_struct(data)
    except FormatError as error:
        assert str(error).startswith("offset ") and "expected" in str(error)
    else:
        assert end <= len(data)
        assert decode_struct(encode_struct(struct))[0] == struct


@pytest.mark.slow
@given(STRUCTS)
@settings(max_examples=100)
def test_every_truncation_is_refused(struct: Struct) -> None:
    """A struct cut anywhere is refused."""
    wire = encode_struct(struct)
    for end in range(len(wire)):
        with pytest.raises(FormatError, match="offset"):
            decode_struct(wire[:end])


HUGE = b"\xff\xff\xff\xff\x0f"
REFUSED = {
    "binary longer than the rest": b"\x18" + HUGE + b"ab\x00",
    "list longer than the rest": b"\x19\xf5" + HUGE + b"\x00",
    "list of structs longer than the rest": b"\x19\xfc\x10" + bytes(15),
    "list of doubles longer than the rest": b"\x19\x37" + bytes(23),
    "map longer than the rest": b"\x1b" + HUGE + b"\x55\x00",
    "varint of more than 32 bits": b"\x15\xff\xff\xff\xff\xff\x01\x00",
    "varint of more than 16 bits": b"\x14\xff\xff\xff\x01\x00",
    "varint of more than 64 bits": b"\x16" + b"\xff" * 10 + b"\x01\x00",
    "varint that never ends": b"\x16" + b"\x80" * 100_000,
    "field type 14": b"\x1e\x00",
    "field type 0 with an id": b"\x10\x00",
    "list of type 15": b"\x19\x1f\x00\x00",
    "map of type 0": b"\x1b\x01\x00\x00\x00",
    "boolean 3 in a list": b"\x19\x11\x03\x00",
    "a field twice": b"\x15\x02\x05\x02\x02\x00",
    "a field id beyond 16 bits": b"\x05\xfe\xff\x03\x00\x15\x00\x00",
    "uuid cut": b"\x1d" + bytes(15),
    "nothing": b"",
}


@pytest.mark.parametrize("wire", REFUSED.values(), ids=REFUSED.keys())
def test_bytes_against_the_protocol_are_refused(wire: bytes) -> None:
    """Each way to overrun, overflow or mistype is a FormatError with offset and expectation."""
    with pytest.raises(FormatError, match=r"^offset \d+: .*; expected "):
        decode_struct(wire)


@pytest.mark.parametrize("case", [case for case in REFUSED if "longer than the rest" in case])
def test_lengths_are_held_against_what_is_left_before_they_are_used(case: str) -> None:
    """A length or count that cannot be is refused where it stands, not after the bytes have run out."""
    with pytest.raises(FormatError, match="are announced"):
        decode_struct(REFUSED[case])


def test_offsets_count_from_the_origin() -> None:
    """Messages name offsets in the file when the caller says where the bytes begin."""
    with pytest.raises(FormatError, match=r"^offset 1001: "):
        decode_struct(b"\x1e\x00", origin=1000)


@pytest.mark.parametrize("opening", [b"\x1c", b"\x19\x19", b"\x1b\x01\x5b"])
def test_nesting_is_bounded(opening: bytes) -> None:
    """Structs, lists and maps nested thousands deep are refused, and the interpreter's stack is not spent."""
    with pytest.raises(FormatError, match="nest too deep"):
        decode_struct(opening * 5000 + bytes(100))


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small input that would make more values than the limit is refused."""
    monkeypatch.setattr(thrift, "MAX_VALUES", 1000)
    wire = b"\x19\xfc\xd0\x0f" + bytes(3000)
    with pytest.raises(FormatError, match="too many Thrift values"):
        decode_struct(wire)
    fields = b"\x11" * 900 + b"\x00"
    with pytest.raises(FormatError, match="too many Thrift values"):
        decode_struct(b"\x1c" + fields + b"\x1c" + fields + b"\x00")


@pytest.mark.slow
def test_a_hostile_megabyte_is_decoded_or_refused_quickly() -> None:
    """A megabyte of empty structs takes seconds at most: time grows with the bytes, not with what they claim."""
    started = time.process_time()
    struct, _ = decode_struct(b"\x19\xfc\xc0\x84\x3d" + bytes(1_000_001))
    assert len(struct[field_key(1, thrift.LIST)]) == 1_000_000  # type: ignore[arg-type]
    assert time.process_time() - started < 20


def test_empty_containers_keep_their_headers() -> None:
    """Empty lists of any announced type, and empty maps, are written back as they were."""
    wire = b"\x19\x00\x19\x0c\x1a\x05\x1b\x00\x00"
    assert encode_struct(decode_struct(wire)[0]) == wire


def test_booleans_in_lists_keep_their_meaning_when_zero_is_false() -> None:
    """Some writers write false as 0; it is read as false."""
    struct, _ = decode_struct(b"\x19\x32\x01\x00\x02\x00")
    assert struct[field_key(1, thrift.LIST)] == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (thrift.I32, 2**31),
        (thrift.BYTE, 128),
        (thrift.I16, -(2**15) - 1),
        (thrift.BINARY, "text"),
        (thrift.DOUBLE, b"1234567"),
        (thrift.STRUCT, {}),
        (15, b""),
    ],
)
def test_values_that_do_not_fit_their_type_are_not_written(kind: int, value: object) -> None:
    """Encoding refuses a value out of its type's range or of another type, instead of writing another one."""
    with pytest.raises((ValueError, TypeError)):
        encode_struct(Struct({field_key(1, kind): value}))  # type: ignore[dict-item]


def window(data: bytes, start: int = 0, end: int | None = None) -> Window:
    """Return a window over a range of bytes."""
    return Window(Input(io.BytesIO(data), "f", len(data)), start, len(data) if end is None else end)


def struct_of(size: int) -> Struct:
    """Return a struct of one binary field."""
    return Struct({field_key(1, BINARY): bytes(size)})


@pytest.mark.parametrize("read_ahead", [1, 7, 64, 10_000])
def test_bytes_are_taken_in_order_whatever_is_read_ahead(monkeypatch: pytest.MonkeyPatch, read_ahead: int) -> None:
    """Pieces of any size are those of the range, with their offsets, and no byte behind its end is taken."""
    monkeypatch.setattr(window_module, "READ_AHEAD_BYTES", read_ahead)
    monkeypatch.setattr(window_module, "BUFFER_BYTES", 2 * read_ahead)
    data = bytes(range(256)) * 4
    found, at = window(data, 10, 1000), 10
    while found.left:
        size = min(found.left, at % 37)
        assert (found.position, bytes(found.take(size, "x"))) == (at, data[at : at + size])
        at += size or 1
        if not size:
            found.take(1, "x")
    assert at == 1000
    with pytest.raises(FormatError, match="x of 1 bytes; expected at most the 0"):
        found.take(1, "x")


@pytest.mark.parametrize("size", [0, 100, 4090, 4096, 70_000, 3_000_000])
def test_structs_longer_than_the_first_look_are_read_whole(size: int) -> None:
    """A struct of any length up to the limit is taken with exactly its bytes."""
    wire = encode_struct(struct_of(size))
    found = window(b"head" + wire + b"rest")
    assert bytes(found.take(4, "x")) == b"head"
    assert found.take_struct("x") == struct_of(size)
    assert (found.position, bytes(found.take(4, "x"))) == (4 + len(wire), b"rest")


def test_structs_are_taken_where_the_buffer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A struct or a module that begins in one read and ends in the next is whole, wherever the buffer is full."""
    monkeypatch.setattr(window_module, "READ_AHEAD_BYTES", 20)
    monkeypatch.setattr(window_module, "BUFFER_BYTES", 50)
    monkeypatch.setattr(window_module, "HEADER_BYTES", 7)
    wires = [encode_struct(struct_of(size)) for size in range(60)]
    found = window(b"".join(wire + len(wire).to_bytes(4, "little") + wire for wire in wires))
    for size, wire in enumerate(wires):
        assert found.take_struct("x") == struct_of(size)
        assert bytes(found.take_module("x"))[4:] == wire
    assert not found.left


def test_structs_beyond_the_range_or_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A struct that the range cuts, or that is longer than any header, is refused with the offset in the file."""
    wire = encode_struct(struct_of(50_000))
    with pytest.raises(FormatError, match=r"x: offset \d+: 50000 bytes are announced"):
        window(wire, 0, 40_000).take_struct("x")
    monkeypatch.setattr(window_module, "MAX_HEADER_BYTES", 20_000)
    found = window(bytes(100_000) + wire + bytes(200_000), 100_000)
    with pytest.raises(FormatError, match=r"x: offset 10000\d: "):
        monkeypatch.setattr(window_module, "READ_AHEAD_BYTES", 1)
        monkeypatch.setattr(window_module, "HEADER_BYTES", 20_000)
        found.take_struct("x")


@pytest.mark.parametrize("length", [5, 1000, 2**31 - 1, 2**32 - 1])
def test_modules_that_do_not_fit_are_refused(length: int) -> None:
    """A frame whose length goes beyond the range is refused before it is read."""
    with pytest.raises(FormatError, match=f"m of {length + 4} bytes; expected at most the 8"):
        window(length.to_bytes(4, "little") + bytes(4)).take_module("m")
