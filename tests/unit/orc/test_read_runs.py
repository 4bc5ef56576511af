from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.compression import Compression
from sparkcrypt.files.orc.file.encryption import LocalKey
from sparkcrypt.files.orc.read.runs import BitRuns, ByteRuns, IntegerRuns, Positions, StreamBytes, StreamCursor
from sparkcrypt.files.source import open_source

PATCHED = [2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)]
OF_SPECIFICATION = [
    (1, "610007", [7] * 100),
    (1, "61ff64", list(range(100, 0, -1))),
    (1, "fb020306070b", [2, 3, 6, 7, 11]),
    (2, "0a2710", [10_000] * 5),
    (2, "5e035ca1ab1edeadbeef", [23_713, 43_806, 57_005, 48_879]),
    (2, "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8", PATCHED),
    (2, "c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
    (2, "8e132b2187d01e00147028323c46505a646e78828c96a0aab4befce8", [value - 4000 for value in PATCHED]),
    (2, "c6091d0b42424221", [29, 23, 19, 17, 13, 11, 7, 5, 3, 2]),
]
"""Version, bytes and values of the examples in the specification, without signs; then with a base and steps below 0."""


def cursor(content: bytes, *, key: LocalKey | None = None, codec: str = "none") -> StreamCursor:
    """Return a cursor over a stream of these bytes, decrypted under a key as stream DATA of column 1."""
    compression = Compression(codec, 64)
    with open_source(content) as file:
        start = None if key is None else lambda offset: key.stream(1, 1, 1, offset)
        return StreamCursor(StreamBytes(file, "a stream", 0, len(content), start, compression))


@pytest.mark.parametrize(("version", "raw", "values"), OF_SPECIFICATION)
def test_examples_of_the_specification_are_decoded(version: int, raw: str, values: list[int]) -> None:
    """Every kind of run, at once, value by value, and from a place inside it."""
    runs = IntegerRuns(cursor(bytes.fromhex(raw)), version, False)
    assert runs.read(len(values)).tolist() == values
    runs.seek(Positions([0, 0], None, False, "c"))
    assert [runs.read(1)[0] for _ in values] == values
    runs.seek(Positions([0, len(values) - 2], None, False, "c"))
    assert runs.read(2).tolist() == values[-2:]
    with pytest.raises(FormatError, match=r"a stream: ends \d+ bytes early; expected more values"):
        runs.read(1)


def test_bytes_and_bits_of_the_specification_are_decoded() -> None:
    """A hundred zeros, two literal bytes, and one bit of eight."""
    assert ByteRuns(cursor(bytes.fromhex("6100fe4445"))).read(102) == bytes(100) + b"\x44\x45"
    bits = BitRuns(cursor(bytes.fromhex("ff80")))
    assert bits.read(8).tolist() == [True, *[False] * 7]
    bits.seek(Positions([0, 0, 7], None, False, "c"))
    assert bits.read(1).tolist() == [False]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("9f03ff3f00", "a stream: a patch of 2 and 64 bits; expected at most 64 together"),
        ("8e002b2107d01efce8", "a stream: a patch is of value 3 of a run; expected at most 0"),
        ("c609ffffffffffffffffffff02", "a stream: an integer has more than 10 bytes"),
    ],
)
def test_runs_against_the_specification_are_refused(raw: str, why: str) -> None:
    """Patches that reach too far, and varints that do not end."""
    with pytest.raises(FormatError, match=why):
        IntegerRuns(cursor(bytes.fromhex(raw) + bytes(600)), 2, False).read(1)


@pytest.mark.parametrize("positions", [[0], [0, 1 << 21], [7, 0], [1 << 40, 0]])
def test_positions_that_lead_nowhere_are_refused(positions: list[int]) -> None:
    """Too few numbers, too many values to skip, and places after the end of the stream."""
    with pytest.raises(FormatError, match="expected"):
        IntegerRuns(cursor(bytes.fromhex("0a2710")), 2, False).seek(Positions(positions, None, False, "c"))


@given(content=st.binary(min_size=1, max_size=400), data=st.data(), codec=st.sampled_from(["none", "zlib"]))
def test_any_place_of_a_stream_is_decrypted(content: bytes, data: st.DataObject, codec: str) -> None:
    """From any byte on the content is that of the whole stream, in whatever order places are asked for."""
    key, compression = LocalKey(bytes(range(16))), Compression(codec, 64)
    stream = b"".join(compression.deflated_chunks(content))
    begins = {0: 0, len(stream): len(content)}
    for start, part in compression.located_chunks(stream, "a stream"):
        begins[start] = begins.get(start, 0)
        begins[start] = sum(len(chunk) for at, chunk in compression.located_chunks(stream, "") if at < start)
        assert part
    opened = cursor(key.stream(1, 1, 1).update(stream), key=key, codec=codec)
    for _ in range(4):
        place = data.draw(st.integers(0, len(content) - 1))
        chunk, byte = place, 0
        if codec != "none":
            chunk = max(start for start, first in begins.items() if first <= place)
            byte = place - begins[chunk]
        opened.seek(chunk, byte, None)
        count = data.draw(st.integers(0, len(content) - place))
        assert opened.take(count) == content[place : place + count]
