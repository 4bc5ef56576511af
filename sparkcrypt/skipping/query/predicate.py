"""The forms of predicates that are understood: comparisons of a column with literals, under AND, OR and NOT.

A literal is a value as `sparkcrypt.skipping.format.convert_values` has it (a date is days, a timestamp microseconds).
One of another kind than its column says nothing, and skips nothing.  NaN equals NaN and is greater than any number, as
Spark has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sparkcrypt.skipping.format.convert_values import Value

Operator = Literal["=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Compare:
    """``column OP literal``; a literal of None is SQL's NULL, with which no comparison is true or false."""

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
    """All of them."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of an unknown, unknown."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Unsupported:
    """What is not understood here: it may be true and may be false of any row."""


Predicate: TypeAlias = Compare | In | IsNull | StartsWith | And | Or | Not | Unsupported
