from __future__ import annotations

import io

import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.file import layout as window_module
from sparkcrypt.files.parquet.file.layout import Window
from sparkcrypt.files.parquet.thrift.compact import BINARY, Struct, encode_struct, field_key
from sparkcrypt.files.source import Input


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
