"""The supported predicates: comparisons of a column with literals, combined with AND, OR and NOT.

A literal is a Python value as in `sparkcrypt.skipping.format.convert_values` (a date is days, a timestamp
microseconds).  A comparison with a literal of another type than its column's skips no file.  NaN equals NaN and is
greater than any number, as in Spark.

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
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias, get_args

from sparkcrypt.errors import BridgeError
from sparkcrypt.skipping.format.convert_values import FLOATS, INTEGERS, TIMESTAMPS, Value, decimal_scale

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
