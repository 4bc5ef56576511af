"""Stores that anybody may have written: bounded in time and memory, and refused with one kind of error."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet.file.schema import LeafLevels
from sparkcrypt.skipping.format import values
from sparkcrypt.skipping.format.store import merge_parts
from sparkcrypt.skipping.format.values import decompress_page
from tests.fuzz.attempt import deadline
from tests.fuzz.mutate import mutate_bytes

from .stores import bounds_of, index_field, list_type, minmax_type, read_bytes, schema_json, store_bytes

CASES = 1500
_hybrid = values._hybrid


def originals() -> list[bytes]:
    """Return stores with every kind of index, under each codec."""
    schema = schema_json(
        [
            index_field("a_minmax_1", minmax_type("string"), "minmax", ["a"]),
            index_field("b_minmax_1", minmax_type("decimal(20,2)"), "minmax", ["b"]),
            index_field("c_valuelist_1", list_type("long"), "valuelist", ["c"]),
            index_field("d_bloomfilter_1", "binary", "bloomfilter", ["d"]),
        ]
    )
    columns = {
        "a_minmax_1": bounds_of([("a" * 90, "b" * 90), None, ("c", None)], pa.string()),
        "b_minmax_1": bounds_of([(1, 2)] * 3, pa.decimal128(20, 2)),
        "c_valuelist_1": pa.array([[1, 2, 3], [], None], pa.list_(pa.int64())),
        "d_bloomfilter_1": pa.array([b"\xac\xed\x00\x05sr", None, b""]),
    }
    hows = [
        {"compression": codec, "use_dictionary": packed}
        for codec in ("none", "snappy", "gzip")
        for packed in (False, True)
    ]
    return [store_bytes(schema, columns, **how) for how in hows]  # type: ignore[arg-type]


def test_damaged_stores_are_refused_or_read() -> None:
    """Damaged stores give nothing but errors of this package, each in time, and most of them a format error."""
    sources, chance, outcomes = originals(), random.Random(20261122), Counter[str]()
    for number in range(CASES):
        data = mutate_bytes(sources[number % len(sources)], chance, sources[number * 7 % len(sources)])
        try:
            with deadline(10.0):
                merge_parts([read_bytes(data)])
                outcomes["read"] += 1
        except (FormatError, VerificationError, ConfigError) as error:
            outcomes[type(error).__name__] += 1
    assert outcomes["read"] > 20 and outcomes["FormatError"] > CASES // 3


@pytest.mark.parametrize("name", ["compression", "encoding"])
def test_damaged_pages_give_no_other_error(name: str) -> None:
    """Bytes that decompress or decode to anything are read within what was announced, or refused."""
    chance = random.Random(name)
    refused = 0
    for _ in range(8000):
        data = chance.randbytes(chance.randrange(0, 60))
        if name == "compression":
            whole = bytes([40, *data]) if chance.random() < 0.7 else data
            refused += _refused(decompress_page, whole, chance.choice((0, 1, 2, 6, -1, 99)), 40)
        else:
            width, count = chance.randrange(0, 34), chance.randrange(0, 500)
            refused += _refused(_checked, data, width, count)
    assert 4000 < refused < 8000


def _checked(data: bytes, width: int, count: int) -> None:
    found = _hybrid(data, 0, width, count)
    assert len(found) == count


def _refused(read: Callable[..., object], *arguments: object) -> bool:
    try:
        read(*arguments)
    except (FormatError, IndexError):  # the latter is what ends a page inside a value, told by its reader
        return True
    return False


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(
            lambda: decompress_page(b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 20, 1, 0xFFFFFFFF), id="snappy"
        ),
        pytest.param(lambda: _hybrid(b"\xff\xff\xff\xff\x0f\x01", 0, 1, 1000), id="a long run"),
        pytest.param(lambda: _hybrid(b"\x00\x01" * 1000, 0, 1, 1000), id="empty runs"),
        pytest.param(lambda: values._byte_arrays(b"\xff\xff\xff\x7f" + b"a" * 99, 0, 1), id="a long text"),
        pytest.param(lambda: values._levels(values._Page(b"\xff\xff\xff\xff", 9, 0), 0, 1), id="long levels"),
    ],
)
def test_what_announces_much_takes_little(bomb: Callable[[], object]) -> None:
    """Lengths and counts are held against what is there before anything of their size is made."""
    tracemalloc.start()
    try:
        _refused(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_levels_beyond_the_schema_are_refused() -> None:
    """A level that the schema does not have would put values where none are."""
    page = values._Page(b"\x02\x00\x00\x00\x08\x03" + b"\x00" * 40, 4, 0)
    with pytest.raises(FormatError, match="level 3"):
        values._data_page(page, LeafLevels(2, 0), values._plain_reader(2, 0), None, values.Decoded(None, [], []))
