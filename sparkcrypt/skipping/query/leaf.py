"""What one index, or the partition, says of a comparison over the rows of an object.

Of an object it is asked whether some row *may* make it true, and whether some row may make it false; both answers may
be too large, and never too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.convert_values import FLOATS, INTEGERS, TIMESTAMPS, Value, decimal_scale
from sparkcrypt.skipping.format.store import UNKNOWN, Bounds
from sparkcrypt.skipping.query.predicate import Compare, In, IsNull, StartsWith


class Answer(NamedTuple):
    """Whether some row of an object may make a predicate true, and whether some row may make it false."""

    may_be_true: bool
    may_be_false: bool


ANY, _NEITHER = Answer(True, True), Answer(False, False)
Refute: TypeAlias = Callable[[int], "str | None"]
_Test: TypeAlias = Callable[["Value | None"], "bool | None"]


class Filter:
    """A Bloom filter of an object, read when it is first asked; it lives no longer than its store."""

    __slots__ = ("_data", "_held")

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self._held: BloomFilter | None = None

    def read_filter(self) -> BloomFilter | None:
        """Return the filter; None where it is damaged or there is none, which says nothing."""
        if self._data is not None:
            with suppress(FormatError):
                self._held = BloomFilter.of_bytes(self._data)
            self._data = None
        return self._held


Known: TypeAlias = Bounds | frozenset[Value] | Filter


@dataclass(frozen=True, slots=True)
class Column:
    """What a store knows of a column: its type, and per row of the store what each index or the partition says.

    ``names`` says of each index what kind it is.
    """

    kind: str
    indexes: tuple[tuple[Known | None, ...], ...] = ()
    partition: tuple[object, ...] | None = None
    names: tuple[str, ...] = ()


def refute_leaf(column: Column, predicate: Compare | In | IsNull | StartsWith, *, of: bool) -> Refute:
    """Return what tells of an object by which index no row of it can make a predicate ``of``, true or false.

    What is the same for all objects is done here, once.

    Args:
        column: what is known of the predicate's column.
        predicate: over that column.
        of: which of the two is asked for.

    Returns:
        Row of the store -> the kind of the index, ``partition`` where a folder says so; None where some row may.
    """
    test = _test(column.kind, predicate)
    if test is None:
        return _refute_nothing
    if column.partition is not None:
        return _refute_partition(column.partition, test, of)
    if not of and column.kind in FLOATS and isinstance(predicate, In) and 0.0 in predicate.literals:
        return _refute_nothing  # Spark's sets take -0.0 and 0.0 for two values
    judge, side = _judge_entry(column.kind, predicate, test), 0 if of else 1
    indexes = tuple(zip(column.names, column.indexes, strict=True))

    def refute(row: int) -> str | None:
        for name, entries in indexes:
            entry = entries[row]
            if entry is not None and not judge(entry)[side]:
                return name
        return None

    return refute


def _refute_nothing(_: int) -> str | None:
    return None


def _refute_partition(values: tuple[object, ...], test: _Test, of: bool) -> Refute:
    def refute(row: int) -> str | None:
        value: Any = values[row]
        return None if value is UNKNOWN or test(value) is of else "partition"

    return refute


def _judge_entry(kind: str, predicate: Any, test: _Test) -> Callable[[Known], Answer]:
    """Return what tells what an index says of an object that it knows."""
    if isinstance(predicate, IsNull):  # no index counts nulls; without a value there is nothing that is not null
        return lambda entry: Answer(True, entry not in (Bounds(None, None), frozenset()))
    of_bounds = _judge_bounds(kind, predicate)

    def judge(entry: Known) -> Answer:
        if isinstance(entry, Bounds):
            return _NEITHER if entry.least is None or entry.greatest is None else of_bounds(entry.least, entry.greatest)
        return _of_values(entry, test) if isinstance(entry, frozenset) else _of_filter(entry, kind, predicate)

    return judge


def _of_values(values: Iterable[Value | None], test: _Test) -> Answer:
    found = {test(value) for value in values}
    return Answer(True in found, False in found)


def _judge_bounds(kind: str, predicate: Any) -> Callable[[Any, Any], Answer]:
    """Return what tells what a least and a greatest value say."""
    ordered: Callable[[Any], Any] = order if kind in FLOATS else _keep_value
    if isinstance(predicate, StartsWith):
        return partial(_judge_prefix, predicate.prefix)
    if isinstance(predicate, In):
        literals = [ordered(literal) for literal in predicate.literals if literal is not None]
        return partial(_judge_list, ordered, literals, len(literals) < len(predicate.literals))
    if predicate.literal is None:
        return lambda _, __: _NEITHER
    literal, holds = ordered(predicate.literal), _COMPARISONS[predicate.operator]
    if predicate.operator == "=":
        return partial(_judge_equality, ordered, literal)

    def judge(least: Any, greatest: Any) -> Answer:
        first, last = holds(ordered(least), literal), holds(ordered(greatest), literal)
        return Answer(first or last, not (first and last))

    return judge


def _judge_prefix(prefix: str, least: Any, greatest: Any) -> Answer:
    heads = str(least)[: len(prefix)], str(greatest)[: len(prefix)]
    return Answer(heads[0] <= prefix <= heads[1], not heads[0] == heads[1] == prefix)


def _judge_list(ordered: Callable[[Any], Any], literals: list[Any], nulls: bool, least: Any, greatest: Any) -> Answer:
    least, greatest = ordered(least), ordered(greatest)
    single = least == greatest and least in literals
    return Answer(any(least <= literal <= greatest for literal in literals), not nulls and not single)


def _judge_equality(ordered: Callable[[Any], Any], literal: Any, least: Any, greatest: Any) -> Answer:
    least, greatest = ordered(least), ordered(greatest)
    return Answer(least <= literal <= greatest, not least == literal == greatest)


def _keep_value(value: Any) -> Any:
    return value


def _of_filter(entry: Filter, of: str, predicate: Any) -> Answer:
    """Return what a Bloom filter says: that a value of `=` or IN is not there; of anything else nothing."""
    literals = predicate.literals if isinstance(predicate, In) else ()
    if isinstance(predicate, Compare) and predicate.operator == "=":
        literals = (predicate.literal,)
    elif not isinstance(predicate, In):
        return ANY
    if of not in INTEGERS and of != "string":
        return ANY
    held = entry.read_filter()
    if held is None:
        return ANY
    return Answer(any(_may_hold(held, literal, of) for literal in literals), True)


def _may_hold(held: BloomFilter, literal: Value | None, kind: str) -> bool:
    """Tell whether a literal may be in a filter; a null is in none, nor is an integer too large for the column."""
    if isinstance(literal, str):
        return held.may_hold(literal)
    if not isinstance(literal, int):
        return False
    half = 1 << (INTEGERS[kind] - 1)
    return -half <= literal < half and held.may_hold(literal)


def _test(kind: str, predicate: Any) -> _Test | None:
    """Return what a predicate is for one value; None where a literal is of another kind than the column."""
    if isinstance(predicate, IsNull):
        return lambda value: value is None
    if isinstance(predicate, StartsWith):
        prefix = predicate.prefix
        return (lambda value: None if value is None else str(value).startswith(prefix)) if kind == "string" else None
    literals = predicate.literals if isinstance(predicate, In) else (predicate.literal,)
    if not all(literal is None or is_of(literal, kind) for literal in literals):
        return None
    if isinstance(predicate, In):
        wanted, nulls = {order(literal) for literal in literals if literal is not None}, None in literals
        return lambda value: None if value is None else order(value) in wanted or (None if nulls else False)
    if predicate.literal is None:
        return lambda _: None
    holds, literal = _COMPARISONS[predicate.operator], order(predicate.literal)
    return lambda value: None if value is None else holds(order(value), literal)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def order(value: Value) -> tuple[bool, Any]:
    """Return what orders values of one type as Spark does: NaN is equal to NaN and greater than any number."""
    return (True, 0) if value != value else (False, value)


def is_of(value: Value, kind: str) -> bool:
    """Tell whether a literal is a value of a type, so that it compares with the column's values exactly."""
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in INTEGERS or kind == "date" or kind in TIMESTAMPS:
        return isinstance(value, int)
    if kind in FLOATS:
        return isinstance(value, float)  # Spark makes a double of an integer, which may be another number
    if decimal_scale(kind) is not None:
        return isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite())
    return isinstance(value, str if kind == "string" else bytes)
