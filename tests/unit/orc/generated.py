"""Generated tables of every type that is decoded, as ORC files of the C++ writer."""

from __future__ import annotations

import datetime
import io
import math
import random
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.orc

TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("ns"),
    "instant": pa.timestamp("ns", tz="UTC"),
    "decimal": pa.decimal128(19, 2),
    "long decimal": pa.decimal128(38, 3),
}
NESTED = ("struct", "list", "lists", "map")
CODECS = ("uncompressed", "zlib", "snappy", "lz4", "zstd")
ROWS = (0, 1, 7, 300, 3000, 20_000)


def make_array(kind: str, rows: int, chance: random.Random) -> pa.Array:
    """Return values of a kind, some, none or all of them null."""
    nulls = chance.choice((0, 0, 0.1, 0.9, 1))
    make = _maker(kind, chance)
    return pa.array([None if chance.random() < nulls else make(row) for row in range(rows)], TYPES[kind])


def make_nested(kind: str, rows: int, chance: random.Random) -> pa.Array:
    """Return structs, lists, lists of lists or structs, or maps."""
    flat = sorted(TYPES)
    is_null = pa.array([chance.random() < 0.2 for _ in range(rows)], pa.bool_())
    if kind == "struct":
        fields = [make_array(chance.choice(flat), rows, chance) for _ in range(2)]
        return pa.StructArray.from_arrays(fields, ["x", "y"], mask=is_null)
    offsets = [0]
    for _ in range(rows):
        offsets.append(offsets[-1] + chance.choice((0, 0, 1, 2, 5)))
    starts, total = pa.array(offsets, pa.int32()), offsets[-1]
    if kind == "lists":
        return pa.ListArray.from_arrays(starts, make_nested(chance.choice(NESTED), total, chance), mask=is_null)
    values = make_array(chance.choice(flat), total, chance)
    if kind == "list":
        return pa.ListArray.from_arrays(starts, values, mask=is_null)
    keys = pa.array([str(chance.randrange(9)) for _ in range(total)], pa.string())
    return pa.MapArray.from_arrays(starts, keys, values)


def write_orc(table: pa.Table, chance: random.Random, **options: Any) -> bytes:
    """Return a table as a file, under chosen options or given ones."""
    chosen = {
        "compression": chance.choice(CODECS),
        "file_version": chance.choice(("0.11", "0.12")),
        "row_index_stride": chance.choice((1, 100, 500, 1000, 10_000)),
        "stripe_size": chance.choice((4096, 100_000)),
        "compression_block_size": 65_536,
        "dictionary_key_size_threshold": chance.choice((0, 1.0)),
        "batch_size": chance.choice((64, 1024)),
    }
    written = io.BytesIO()
    pa.orc.write_table(table, written, **chosen | options)
    return written.getvalue()


def _maker(kind: str, chance: random.Random) -> Callable[[int], object]:
    if pa.types.is_integer(TYPES[kind]):
        return _integers(TYPES[kind].bit_width, chance)
    step = chance.choice((1, 1000, 10**6, 10**9))
    most = chance.choice((3, 50, 10**6))
    odd = chance.choice(((), (math.nan, math.inf, -math.inf, -0.0)))
    digits = chance.choice((3, 17, 37))
    makers: dict[str, Callable[[int], object]] = {
        "boolean": lambda row: chance.random() < 0.3,
        "string": lambda row: "é" * chance.randrange(3) + str(chance.randrange(most)),
        "binary": lambda row: chance.randbytes(chance.randrange(6)),
        "date": lambda row: datetime.date(1970, 1, 1) + datetime.timedelta(days=chance.randrange(-140_000, 200_000)),
        "timestamp": lambda row: step * chance.randrange(-9 * 10**9, 9 * 10**9),
        "decimal": lambda row: Decimal(chance.randrange(-(10 ** min(digits, 17)), 10**17)) / 100,
        "long decimal": lambda row: Decimal(chance.randrange(-(10**digits), 10**37)).scaleb(-3, Context(prec=60)),
    }
    makers["instant"] = makers["timestamp"]
    return makers.get(
        kind, lambda row: chance.choice(odd) if odd and chance.random() < 0.1 else float(chance.randrange(-999, 999))
    )


def _integers(bits: int, chance: random.Random) -> Callable[[int], int]:
    """Return integers that writers put into runs of every sort."""
    end, step = 1 << bits - 1, chance.choice((1, 1, 3))
    return chance.choice(
        (
            lambda row: chance.randrange(-end, end),
            lambda row: chance.randrange(-5, 5),
            lambda row: row * step % end,
            lambda row: -row * step % end,
            lambda row: row // 37 % end,
            lambda row: end - 1 if chance.random() < 0.02 else chance.randrange(100),
            lambda row: -end if chance.random() < 0.01 else chance.randrange(min(100, end)),
        )
    )
