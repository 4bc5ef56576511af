"""What one index, or the partition, says of a comparison over the rows of an object.

Of an object it is asked whether some row *may* make it true, and whether some row may make it false; both answers may
be too large, and never too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.store import UNKNOWN, Bounds
from sparkcrypt.skipping.format.types import FLOATS, INTEGERS, TIMESTAMPS, Value, decimal_scale
from sparkcrypt.skipping.query.predicate import Compare, In, IsNull, StartsWith


class Answer(NamedTuple):
    """Whether some row of an object may make a predicate true, and whether some row may make it false."""

    may_be_true: bool
    may_be_false: bool


ANY, _NEITHER = Answer(True, True), Answer(False, False)
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


def answer_leaf(column: Column, row: int, predicate: Compare | In | IsNull | StartsWith) -> Answer:
    """Return what all that is known of a column says of a predicate over the rows of one object."""
    test = _test(column.kind, predicate)
    if test is None:
        return ANY
    if column.partition is not None:
        value = column.partition[row]
        return ANY if value is UNKNOWN else _of_values([value], test)  # type: ignore[list-item]  # a value or null
    answer = ANY
    for _, item in _answer_indexes(column, row, predicate, test):
        answer = Answer(answer.may_be_true and item.may_be_true, answer.may_be_false and item.may_be_false)
    if column.kind in FLOATS and isinstance(predicate, In) and 0.0 in predicate.literals:
        return Answer(answer.may_be_true, True)  # Spark's sets take -0.0 and 0.0 for two values
    return answer


def name_deciding_index(column: Column, row: int, predicate: Compare | In | IsNull | StartsWith, *, of: bool) -> str:
    """Return the kind of the index by which a predicate cannot be ``of``; ``partition`` where a folder says so."""
    test = _test(column.kind, predicate)
    if column.partition is None and test is not None:
        for name, item in _answer_indexes(column, row, predicate, test):
            if not (item.may_be_true if of else item.may_be_false):
                return name
    return "partition"


def _answer_indexes(column: Column, row: int, predicate: Any, test: _Test) -> Iterator[tuple[str, Answer]]:
    """Yield what each index says of an object that it knows, with the index's kind."""
    for name, entries in zip(column.names, column.indexes, strict=True):
        entry = entries[row]
        if entry is not None:
            yield name, _of_entry(entry, column.kind, predicate, test)


def _of_entry(entry: Known, of: str, predicate: Any, test: _Test) -> Answer:
    if isinstance(predicate, IsNull):  # no index counts nulls; without a value there is nothing that is not null
        empty = entry == Bounds(None, None) or entry == frozenset()
        return Answer(True, not empty)
    if isinstance(entry, frozenset):
        return _of_values(entry, test)
    if isinstance(entry, Bounds):
        return _of_bounds(entry, predicate)
    return _of_filter(entry, of, predicate)


def _of_values(values: Iterable[Value | None], test: _Test) -> Answer:
    found = {test(value) for value in values}
    return Answer(True in found, False in found)


def _of_bounds(bounds: Bounds, predicate: Any) -> Answer:
    if bounds.least is None or bounds.greatest is None:
        return _NEITHER
    least, greatest = order(bounds.least), order(bounds.greatest)
    if isinstance(predicate, StartsWith):
        heads = str(bounds.least)[: len(predicate.prefix)], str(bounds.greatest)[: len(predicate.prefix)]
        return Answer(heads[0] <= predicate.prefix <= heads[1], not heads[0] == heads[1] == predicate.prefix)
    if isinstance(predicate, In):
        literals = [order(literal) for literal in predicate.literals if literal is not None]
        nulls = len(literals) < len(predicate.literals)
        single = least == greatest and least in literals
        return Answer(any(least <= literal <= greatest for literal in literals), not nulls and not single)
    if predicate.literal is None:
        return _NEITHER
    literal = order(predicate.literal)
    if predicate.operator == "=":
        return Answer(least <= literal <= greatest, not least == literal == greatest)
    holds = _COMPARISONS[predicate.operator]
    either = holds(least, literal), holds(greatest, literal)
    return Answer(any(either), not all(either))


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
