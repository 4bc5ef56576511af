"""Parses predicates that the jar sends as JSON arrays of an operator and its operands.

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
from decimal import Decimal, InvalidOperation
from typing import Any, get_args

from sparkcrypt.errors import BridgeError
from sparkcrypt.skipping.format.convert_values import FLOATS, Value, decimal_scale
from sparkcrypt.skipping.query.leaf import is_of
from sparkcrypt.skipping.query.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unsupported,
)

_OPERATORS = frozenset(get_args(Operator))
_HINT = "the jar and this helper do not belong together"


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
