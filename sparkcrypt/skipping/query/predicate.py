"""The supported predicates: comparisons of a column with literals, combined with AND, OR and NOT.

A literal is a Python value as in `sparkcrypt.skipping.format.convert_values` (a date is days, a timestamp
microseconds).  A comparison with a literal of another type than its column's skips no file.  NaN equals NaN and is
greater than any number, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sparkcrypt.skipping.format.convert_values import Value

Operator = Literal["=", "<", "<=", ">", ">="]


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
