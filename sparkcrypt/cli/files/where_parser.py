"""Parses ``--where`` into a predicate over a store's columns; unsupported parts exclude no object.

predicate: [NOT] column OP literal, column [NOT] IN (…), column [NOT] BETWEEN a AND b, column [NOT] LIKE 'prefix%',
           column IS [NOT] NULL, and AND, OR, NOT and parentheses over them
literal:   123, -1.5, 1e3, 'text', TRUE, FALSE, NULL, DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00Z'
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import click

from sparkcrypt.skipping.format.convert_values import FLOATS, INTEGERS, TIMESTAMPS, Value, decimal_scale
from sparkcrypt.skipping.query.predicate import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith, Unsupported

MAX_CHARACTERS = 20_000
MAX_DEPTH = 100
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\]|'')*')|(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|<>|!=|[=<>(),]))"
)
_OPERATORS = {"=", "<", "<=", ">", ">="}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The token as a keyword or a sign."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


class _Literal(NamedTuple):
    """A literal as it was written: ``kind`` is number, text, date, timestamp, boolean or null."""

    kind: str
    text: str


def parse_where(text: str, types: Mapping[str, str]) -> Predicate:
    """Parse a predicate.

    Args:
        text: the predicate.
        types: column -> its Spark type; comparisons of other columns, or with other types, are `Unsupported`.

    Raises:
        click.UsageError: the text is not a predicate of this form.
    """
    parser = _Parser(_tokens(text), types)
    found = parser.parse_or(0)
    if parser.next:
        parser.fail("the end")
    return found


def _tokens(text: str) -> list[_Token]:
    if len(text) > MAX_CHARACTERS:
        raise click.UsageError(f"--where has {len(text)} characters; allowed: {MAX_CHARACTERS}")
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise click.UsageError(f"--where at character {at + 1}: expected a column, a literal or an operator")
        found.append(_Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Parser:
    """A recursive-descent parser of a list of tokens."""

    def __init__(self, tokens: list[_Token], types: Mapping[str, str]) -> None:
        self._tokens, self._at = tokens, 0
        self._types = {column.lower(): (column, kind) for column, kind in types.items()}

    @property
    def next(self) -> _Token | None:
        """The next token, or None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def fail(self, expected: str) -> NoReturn:
        """Raise a usage error for the next token."""
        token = self.next
        where = "at its end" if token is None else f"at token {self._at + 1}, {token.kind}"
        raise click.UsageError(f"--where {where}: expected {expected}")

    def accept(self, *words: str) -> bool:
        """Consume these keywords or signs if they come next, and tell whether they did."""
        there = [token.word for token in self._tokens[self._at : self._at + len(words)]]
        if there != list(words):
            return False
        self._at += len(words)
        return True

    def need(self, word: str) -> None:
        if not self.accept(word):
            self.fail(word)

    def parse_or(self, depth: int) -> Predicate:
        """Parse a disjunction, which has the lowest precedence."""
        if depth > MAX_DEPTH:
            self.fail(f"at most {MAX_DEPTH} levels")
        parts = [self._parse_and(depth)]
        while self.accept("OR"):
            parts.append(self._parse_and(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _parse_and(self, depth: int) -> Predicate:
        parts = [self._parse_not(depth)]
        while self.accept("AND"):
            parts.append(self._parse_not(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _parse_not(self, depth: int) -> Predicate:
        negated = False
        while self.accept("NOT"):
            negated = not negated
        if self.accept("("):
            found = self.parse_or(depth + 1)
            self.need(")")
        else:
            found = self._parse_leaf()
        return Not(found) if negated else found

    def _parse_leaf(self) -> Predicate:
        column, kind = self._column()
        if self.accept("IS"):
            negated = self.accept("NOT")
            self.need("NULL")
            found: Predicate = IsNull(column) if kind else Unsupported()
            return Not(found) if negated else found
        negated = self.accept("NOT")
        if self.accept("IN"):
            found = self._parse_in(column, kind)
        elif self.accept("BETWEEN"):
            least = self._literal()
            self.need("AND")
            found = And((_compare(column, kind, ">=", least), _compare(column, kind, "<=", self._literal())))
        elif self.accept("LIKE"):
            found = _translate_like(column, kind, self._literal())
        elif negated:
            self.fail("IN, BETWEEN or LIKE")
        else:
            return self._comparison(column, kind)
        return Not(found) if negated else found

    def _comparison(self, column: str, kind: str) -> Predicate:
        token = self.next
        if token is None or token.word not in {*_OPERATORS, "<>", "!="}:
            self.fail("an operator")
        self._at += 1
        if token.word in _OPERATORS:
            return _compare(column, kind, token.word, self._literal())
        return Not(_compare(column, kind, "=", self._literal()))

    def _parse_in(self, column: str, kind: str) -> Predicate:
        self.need("(")
        literals = [self._literal()]
        while self.accept(","):
            literals.append(self._literal())
        self.need(")")
        values = [_value(literal, kind) for literal in literals]
        if any(isinstance(value, Unsupported) for value in values):
            return Unsupported()
        return In(column, tuple(value for value in values if not isinstance(value, Unsupported)))

    def _column(self) -> tuple[str, str]:
        token = self.next
        if token is None or token.kind not in ("word", "quoted"):
            self.fail("a column")
        self._at += 1
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        return self._types.get(name.lower(), (name, ""))

    def _literal(self) -> _Literal:
        if self.accept("NULL"):
            return _Literal("null", "")
        for word in ("TRUE", "FALSE"):
            if self.accept(word):
                return _Literal("boolean", word)
        typed = next((word.lower() for word in ("DATE", "TIMESTAMP") if self.accept(word)), "")
        token = self.next
        if token is None or token.kind not in ("text", "number") or (typed and token.kind != "text"):
            self.fail("a literal")
        self._at += 1
        text = token.text[1:-1].replace("''", "'") if token.kind == "text" else token.text
        return _Literal(typed or token.kind, text)


def _compare(column: str, kind: str, operator: Any, literal: _Literal) -> Predicate:
    value = _value(literal, kind)
    return Unsupported() if isinstance(value, Unsupported) else Compare(column, operator, value)


def _translate_like(column: str, kind: str, literal: _Literal) -> Predicate:
    prefix = literal.text[:-1]
    simple = kind == "string" and literal.kind == "text" and literal.text.endswith("%")
    return StartsWith(column, prefix) if simple and not set(prefix) & set("%_\\") else Unsupported()


def _value(literal: _Literal, kind: str) -> Value | Unsupported | None:
    """Return a literal as a value of a column's type, or `Unsupported` if Spark would not compare it as one."""
    if literal.kind == "null" and kind:
        return None
    if literal.kind == "boolean":
        return literal.text == "TRUE" if kind == "boolean" else Unsupported()
    if literal.kind == "text" and kind == "string":
        return literal.text
    if literal.kind == "number":
        return _number(literal.text, kind)
    if literal.kind == "date" == kind or (literal.kind == "timestamp" and kind in TIMESTAMPS):
        return _moment(literal.text, kind)
    return Unsupported()


def _number(text: str, kind: str) -> Value | Unsupported:
    if kind in INTEGERS:
        return int(text) if text.lstrip("-").isdigit() else Unsupported()
    if kind in FLOATS:
        return float(text)
    return Decimal(text) if decimal_scale(kind) is not None else Unsupported()


def _moment(text: str, kind: str) -> Value:
    try:
        if kind == "date":
            return (datetime.date.fromisoformat(text) - _EPOCH.date()).days
        found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise click.UsageError(f"--where: {kind} literal is not ISO 8601; expected as in DATE '2024-02-29'") from error
    zoned = found.replace(tzinfo=datetime.timezone.utc) if found.tzinfo is None else found
    return (zoned - _EPOCH) // datetime.timedelta(microseconds=1)
