"""Columns of all types with their traps, random predicates over them, and what pyarrow makes of those."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.skipping.query.skipper import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith

NAN = math.nan
WORDS = ["", "a", "ab", "abc", "abd", "b", "ba", "é", "éa", "z", "zz", "\U0001f600", "\uffff"]
MOMENTS = [
    datetime.datetime(1850, 7, 4, 1, 2, 3, 4),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    *(datetime.datetime(2024, 1, day) for day in (1, 2, 3)),
]
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "b": ("byte", pa.int8(), [-128, -1, 0, 1, 7, 127]),
    "h": ("short", pa.int16(), [-(2**15), -129, -1, 0, 5, 128, 2**15 - 1]),
    "l": ("long", pa.int64(), [*range(-4, 5), 2**63 - 1, -(2**63)]),
    "i": ("integer", pa.int32(), [*range(-3, 4)]),
    "x": ("double", pa.float64(), [NAN, NAN, -math.inf, math.inf, -0.0, 0.0, 0.1, 1.5, -2.5]),
    "f": ("float", pa.float32(), [NAN, -0.0, 0.0, 0.5, 1.5, -2.5]),
    "s": ("string", pa.string(), WORDS),
    "v": ("binary", pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"a"]),
    "n": ("decimal(9,2)", pa.decimal128(9, 2), [Decimal(n).scaleb(-2) for n in (-500, -1, 0, 1, 99, 100, 12345)]),
    "w": ("decimal(38,9)", pa.decimal128(38, 9), [Decimal(n).scaleb(-9) for n in (-(10**30), -1, 0, 1, 10**9, 10**37)]),
    "o": ("boolean", pa.bool_(), [True, False]),
    "d": ("date", pa.date32(), [datetime.date(1800, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "t": ("timestamp", pa.timestamp("us", tz="UTC"), MOMENTS),
    "u": ("timestamp_ntz", pa.timestamp("us"), MOMENTS),
}
"""Column -> Spark's type, Arrow's, and the values that its rows and literals are drawn from."""
TEXTS = ("s", "part", "p")
"""Columns of text, which may begin with a prefix."""


def drawn(chance: random.Random, name: str, rows: int) -> pa.Array:
    """Return a column of one object: of few of its values, so that objects differ, with nulls, or nothing else."""
    _, of, values = COLUMNS[name]
    some = chance.sample(values, k=min(len(values), chance.choice([1, 1, 2, 3])))
    nulls = chance.choice([0.0, 0.0, 0.3, 1.0])
    return pa.array([None if chance.random() < nulls else chance.choice(some) for _ in range(rows)], of)


def plain(name: str, value: Any) -> Any:
    """Return a value as stores have it."""
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return value + 0.0 if isinstance(value, float) else value


class Chooser:
    """Draws predicates over columns.

    Args:
        chance: what draws.
        names: the columns.
        literal: returns a literal of a column.
    """

    def __init__(self, chance: random.Random, names: Sequence[str], literal: Callable[[str], Any]) -> None:
        self._chance, self._names, self._draw = chance, names, literal

    def predicate(self, depth: int) -> Predicate:
        """Return a random predicate."""
        chance = self._chance
        way = chance.randrange(9 if depth else 6)
        name = chance.choice(self._names)
        if way >= 6:
            parts = tuple(self.predicate(depth - 1) for _ in range(chance.randint(1, 3)))
            return Not(parts[0]) if way == 6 else And(parts) if way == 7 else Or(parts)
        if way == 0:
            return IsNull(name)
        if way == 1 and name in TEXTS:
            return StartsWith(name, chance.choice(WORDS))
        if way == 2:
            return In(name, tuple(self.literal(name) for _ in range(chance.randint(1, 3))))
        return Compare(name, chance.choice(["=", "<", "<=", ">", ">="]), self.literal(name))

    def literal(self, name: str) -> Any:
        """Return a literal, now and then null."""
        return None if self._chance.random() < 0.05 else self._draw(name)


def evaluated(rows: pa.Table, predicate: Predicate) -> Any:
    """Evaluate a predicate over rows, as SQL has it, by pyarrow: true, false or null for each."""
    match predicate:
        case And(parts) | Or(parts):
            found = [evaluated(rows, part) for part in parts]
            for part in found[1:]:
                found[0] = (pc.and_kleene if isinstance(predicate, And) else pc.or_kleene)(found[0], part)
            return found[0]
        case Not(part):
            return pc.invert(evaluated(rows, part))
        case IsNull(name):
            return pc.is_null(rows[name])
        case StartsWith(name, prefix):
            return pc.starts_with(rows[name], prefix)
        case In(name, literals):
            return evaluated(rows, Or(tuple(Compare(name, "=", literal) for literal in literals)))
        case Compare(name, operator, literal):
            return compared(rows[name], operator, literal)
    raise AssertionError(predicate)


def compared(column: Any, operator: str, literal: Any) -> Any:
    """Compare a column with a literal; of floats NaN equals NaN and is greater than any number."""
    if literal is None:
        return pa.chunked_array([pa.nulls(len(column), pa.bool_())])
    if operator in ("<=", ">="):
        return pc.invert(compared(column, ">" if operator == "<=" else "<", literal))
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    functions = {"=": pc.equal, "<": pc.less, ">": pc.greater}
    if not pa.types.is_floating(column.type):
        return functions[operator](column, pa.scalar(literal, column.type))
    column = column.cast(pa.float64())
    if math.isnan(literal):
        found = {"=": pc.is_nan(column), "<": pc.invert(pc.is_nan(column)), ">": pc.less(column, -math.inf)}
        return found[operator]
    above = functions[operator](column, literal)
    return pc.or_kleene(above, pc.is_nan(column)) if operator == ">" else above
