"""Predicates, and which files a query with one need not open, determined with a store.

A predicate is made of comparisons of a column with literals, and of AND, OR and NOT.  A literal is a Python value as in
`sparkcrypt.skipping.format.values` (a date is days, a timestamp microseconds).  A comparison with a literal of another
type than its column's skips no file.  NaN equals NaN and is greater than any number, as in Spark.

The jar sends predicates as JSON arrays of an operator and its operands.

=================================  ==============================================
form                               meaning
=================================  ==============================================
``["=", column, literal]``         also ``<``, ``<=``, ``>`` and ``>=``
``["in", column, [literal, …]]``   ``column IN (…)``
``["null", column]``               ``column IS NULL``
``["starts", column, prefix]``     ``column LIKE 'prefix%'``
``["and", [form, …]]``             also ``or``
``["not", form]``
``["unknown"]``                    a predicate that the jar does not support
=================================  ==============================================

A literal is null, or a value of its column's type: a boolean; an integer (days of a date, microseconds of a timestamp);
a float, double or decimal as text; a string; a binary in base64.

The result for an object is whether some row *may* make a predicate true, and whether some row may make it false.  Both
may be reported wrongly as possible, but never wrongly as impossible.  This suffices for AND, OR and NOT: ``NOT p`` may
be true if ``p`` may be false, and for a null a comparison is neither.
A predicate is compiled once, and for each object only the indexes that the result needs are evaluated.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from sparkcrypt.errors import BridgeError, FormatError
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.description import object_name
from sparkcrypt.skipping.format.store import UNKNOWN, Bounds, Store
from sparkcrypt.skipping.format.values import FLOATS, INTEGERS, TIMESTAMPS, Value, decimal_scale
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts

Operator = Literal["=", "<", "<=", ">", ">="]
_OPERATORS = frozenset(get_args(Operator))
_HINT = "the jar and this helper do not belong together"


@dataclass(frozen=True, slots=True)
class Compare:
    """``column OP literal``; a literal of None is SQL's NULL, for which the comparison is neither true nor false."""

    column: str
    operator: Operator
    literal: Value | None


@dataclass(frozen=True, slots=True)
class In:
    """``column IN (literals)``."""

    column: str
    literals: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``; its NOT is ``IS NOT NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """``column LIKE 'prefix%'``."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of predicates."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of predicates."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a predicate; unknown (null) if the predicate is."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A predicate that is not supported: it may be true and may be false for any row."""


Predicate: TypeAlias = Compare | In | IsNull | StartsWith | And | Or | Not | Unsupported


def read_predicate(form: Any, types: Mapping[str, str]) -> Predicate:
    """Return the predicate of a form.

    Args:
        form: the decoded JSON.
        types: column -> its Spark type.

    Raises:
        BridgeError: it is none of the forms above; the message contains no literal.
    """
    match form:
        case ["and", list(parts)]:
            return And(tuple(read_predicate(part, types) for part in parts))
        case ["or", list(parts)]:
            return Or(tuple(read_predicate(part, types) for part in parts))
        case ["not", part]:
            return Not(read_predicate(part, types))
        case ["null", str(column)]:
            return IsNull(column)
        case ["starts", str(column), str(prefix)]:
            return StartsWith(column, prefix)
        case ["in", str(column), list(literals)]:
            return In(column, tuple(_read_literal(literal, column, types) for literal in literals))
        case [operator, str(column), literal] if operator in _OPERATORS:
            return Compare(column, operator, _read_literal(literal, column, types))
        case ["unknown"]:
            return Unsupported()
    raise BridgeError(f"a predicate has a form that is not known; {_HINT}")


def _read_literal(literal: Any, column: str, types: Mapping[str, str]) -> Value | None:
    kind = types.get(column)
    if kind is None:
        raise BridgeError(f"a predicate names column {column!r}, whose type is not told; {_HINT}")
    if literal is None:
        return None
    value: Value | None = literal
    try:
        if kind in FLOATS:
            value = float(literal) if isinstance(literal, str) else None
        elif decimal_scale(kind) is not None:
            value = Decimal(literal) if isinstance(literal, str) else None
        elif kind == "binary":
            value = base64.b64decode(literal, validate=True) if isinstance(literal, str) else None
    except (ValueError, InvalidOperation, binascii.Error):
        value = None
    if value is None or not is_of(value, kind):
        raise BridgeError(f"a literal for column {column!r} is none of type {kind}; {_HINT}")
    return value


def is_of(value: Value, kind: str) -> bool:
    """Tell whether a literal is a value of a type, so that comparing it with the column's values is exact."""
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in INTEGERS or kind == "date" or kind in TIMESTAMPS:
        return isinstance(value, int)
    if kind in FLOATS:
        return isinstance(value, float)  # Spark casts an integer to double, which may change its value
    if decimal_scale(kind) is not None:
        return isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite())
    return isinstance(value, str if kind == "string" else bytes)


class Answer(NamedTuple):
    """Whether some row of an object may make a predicate true, and whether some row may make it false."""

    may_be_true: bool
    may_be_false: bool


ANY, _NEITHER = Answer(True, True), Answer(False, False)
Refute: TypeAlias = Callable[[int], "str | None"]
_Test: TypeAlias = Callable[["Value | None"], "bool | None"]


class Filter:
    """A Bloom filter of an object that is parsed on first use."""

    __slots__ = ("_data", "_held")

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self._held: BloomFilter | None = None

    def read_filter(self) -> BloomFilter | None:
        """Return the filter, or None if it is damaged or missing, so that nothing is known."""
        if self._data is not None:
            with suppress(FormatError):
                self._held = BloomFilter.of_bytes(self._data)
            self._data = None
        return self._held


Known: TypeAlias = Bounds | frozenset[Value] | Filter


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a store: its Spark type, and the entries of its indexes, or its partition values, for each row.

    ``names`` has the kind of each index.
    """

    kind: str
    indexes: tuple[tuple[Known | None, ...], ...] = ()
    partition: tuple[object, ...] | None = None
    names: tuple[str, ...] = ()


def refute_leaf(column: Column, predicate: Compare | In | IsNull | StartsWith, *, of: bool) -> Refute:
    """Return a function that finds an index by which no row of an object can make a predicate true or false, as ``of``.

    Work that does not depend on the object is done here, once.

    Args:
        column: the predicate's column in the store.
        predicate: a predicate over that column.
        of: True: whether rows can make it true; False: whether they can make it false.

    Returns:
        A function: row of the store -> the kind of the index, or ``partition``; None if some row may.
    """
    test = _test(column.kind, predicate)
    if test is None:
        return _refute_nothing
    if column.partition is not None:
        return _refute_partition(column.partition, test, of)
    if not of and column.kind in FLOATS and isinstance(predicate, In) and 0.0 in predicate.literals:
        return _refute_nothing  # -0.0 and 0.0 are two values in Spark's sets
    judge, side = _judge_entry(column.kind, predicate, test), 0 if of else 1
    indexes = tuple(zip(column.names, column.indexes, strict=True))

    def refute(row: int) -> str | None:
        for name, entries in indexes:
            entry = entries[row]
            if entry is not None and not judge(entry)[side]:
                return name
        return None

    return refute


def _refute_partition(values: tuple[object, ...], test: _Test, of: bool) -> Refute:
    def refute(row: int) -> str | None:
        value: Any = values[row]
        return None if value is UNKNOWN or test(value) is of else "partition"

    return refute


def _judge_entry(kind: str, predicate: Any, test: _Test) -> Callable[[Known], Answer]:
    """Return a function that evaluates a predicate against an entry of an index."""
    if isinstance(predicate, IsNull):  # no index counts nulls, but an empty entry shows that all values are null
        return lambda entry: Answer(True, entry not in (Bounds(None, None), frozenset()))
    of_bounds = _judge_bounds(kind, predicate)

    def judge(entry: Known) -> Answer:
        if isinstance(entry, Bounds):
            return _NEITHER if entry.least is None or entry.greatest is None else of_bounds(entry.least, entry.greatest)
        if isinstance(entry, frozenset):
            found = {test(value) for value in entry}
            return Answer(True in found, False in found)
        return _of_filter(entry, kind, predicate)

    return judge


def _judge_bounds(kind: str, predicate: Any) -> Callable[[Any, Any], Answer]:
    """Return a function that evaluates a predicate against a least and a greatest value."""
    ordered: Callable[[Any], Any] = order if kind in FLOATS else lambda value: value
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


def _of_filter(entry: Filter, of: str, predicate: Any) -> Answer:
    """Return a Bloom filter's answer: it can only exclude that `=` or IN is true; other predicates are `ANY`."""
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
    """Tell whether a literal may be in a filter; a null or an integer out of the column's range never is."""
    if isinstance(literal, str):
        return held.may_hold(literal)
    if not isinstance(literal, int):
        return False
    half = 1 << (INTEGERS[kind] - 1)
    return -half <= literal < half and held.may_hold(literal)


def _test(kind: str, predicate: Any) -> _Test | None:
    """Return a function that evaluates a predicate for a value; None if a literal is not of the column's type."""
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
    """Return a sort key that orders values of a type as Spark does: NaN equals NaN and is greater than any number."""
    return (True, 0) if value != value else (False, value)


_Names: TypeAlias = "tuple[str, ...]"
_RefuteRow: TypeAlias = Callable[[int], "_Names | None"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A file that a query listed: its path, modification time (milliseconds since 1970), and length in bytes."""

    path: str
    modified_ms: int
    length: int


class Skipper:
    """Determines which files a query with a predicate need not open.

    Args:
        store: the store, as `read_store` reads it.
        objects: object -> its facts when it was indexed.
        types: column -> its Spark type in the table, for columns whose indexes do not contain it.
    """

    def __init__(
        self, store: Store, objects: Mapping[str, ObjectFacts], types: Mapping[str, str] | None = None
    ) -> None:
        self._columns = _columns(store, types or {})
        self._rows: dict[str, list[int]] = {}
        for row, name in enumerate(store.objects):
            self._rows.setdefault(name, []).append(row)
        self._objects, self._count = objects, len(store.objects)

    def name_indexes(self, files: Iterable[Listed], predicate: Predicate) -> Iterator[tuple[str, ...] | None]:
        """Yield for each file the indexes that exclude it (``column kind``, sorted); None if it must be opened.

        A file is skipped only if it is the indexed one, by name, modification time and length, and none of its rows
        can make the predicate true.
        """
        refute = self._refute(predicate, of=True)
        return _sort_names(self._refute_file(file, refute) for file in files)

    def name_rows(self, predicate: Predicate) -> Iterator[tuple[str, ...] | None]:
        """Yield for each row of the store the indexes that exclude its object, or None; files are not compared."""
        return _sort_names(map(self._refute(predicate, of=True), range(self._count)))

    def answer(self, row: int, predicate: Predicate) -> Answer:
        """Return whether the rows of one object of the store may make a predicate true, or false."""
        return Answer(*(self._refute(predicate, of=of)(row) is None for of in (True, False)))

    def _refute_file(self, file: Listed, refute: _RefuteRow) -> _Names | None:
        name = object_name(file.path, file.modified_ms)
        facts, rows = self._objects.get(name), self._rows.get(name)
        if facts is None or not rows or facts.length != file.length:
            return None
        found: _Names = ()
        for row in rows:
            names = refute(row)
            if names is None:
                return None
            found = found + names if found else names
        return found

    def _refute(self, predicate: Predicate, *, of: bool) -> _RefuteRow:
        """Return a function that finds indexes by which no row of an object can make a predicate ``of``, true or false.

        The function returns None if some row may.  A conjunction cannot be true if one part cannot, and cannot be false
        if no part can; a disjunction is the reverse.
        """
        match predicate:
            case And(parts) | Or(parts):
                inner = [self._refute(part, of=of) for part in parts]
                return partial(_refute_by_one if isinstance(predicate, And) is of else _refute_by_all, inner)
            case Not(part):
                return self._refute(part, of=not of)
            case Unsupported():
                return _refute_nothing
            case _:
                column = self._columns.get(predicate.column)
                if column is None:
                    return _refute_nothing
                kinds = {kind: (f"{predicate.column} {kind}",) for kind in (*column.names, "partition")}
                refute = refute_leaf(column, predicate, of=of)
                return lambda row: None if (kind := refute(row)) is None else kinds[kind]


def _sort_names(found: Iterable[_Names | None]) -> Iterator[_Names | None]:
    known = dict[_Names, _Names]()
    for names in found:
        if names is not None and names not in known:
            known[names] = tuple(sorted(set(names)))
        yield None if names is None else known[names]


def _refute_nothing(_: int) -> None:
    """Refute no row."""


def _refute_by_one(parts: Sequence[_RefuteRow], row: int) -> _Names | None:
    for part in parts:
        names = part(row)
        if names is not None:
            return names
    return None


def _refute_by_all(parts: Sequence[_RefuteRow], row: int) -> _Names | None:
    found: _Names = ()
    for part in parts:
        names = part(row)
        if names is None:
            return None
        found += names
    return found


def _columns(store: Store, types: Mapping[str, str]) -> dict[str, Column]:
    """Return column -> its entries in the store; columns whose indexes have different types are left out."""
    kinds: dict[str, set[str]] = {column: {kind} for column, kind in types.items()}
    held: dict[str, list[tuple[str, tuple[Known | None, ...]]]] = {}
    for index in store.indexes:
        if index.unused is None:
            (column,) = index.index.columns
            entries = tuple([Filter(e) if isinstance(e, bytes) else e for e in index.entries])
            held.setdefault(column, []).append((index.index.kind, entries))
            if index.index.column_type is not None:
                kinds.setdefault(column, set()).add(index.index.column_type)
    found = {
        column: Column(
            next(iter(kinds[column])),
            tuple(entries for _, entries in indexes),
            names=tuple(name for name, _ in indexes),
        )
        for column, indexes in held.items()
        if len(kinds.get(column, ())) == 1
    }
    for partition, values in store.partitions:
        if partition.type is not None and partition.column not in held:
            found[partition.column] = Column(partition.type, partition=values)
    return found
