from __future__ import annotations

from decimal import Decimal

import click
import pytest

from sparkcrypt.cli.files.where_parser import parse_where
from sparkcrypt.skipping.query.predicate import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith, Unsupported

TYPES = {
    **{
        "id": "long",
        "Name": "string",
        "x": "double",
        "n": "decimal(9,2)",
        "day": "date",
        "at": "timestamp",
        "ok": "boolean",
    },
    "a b": "long",
}
ONE = Compare("id", "=", 1)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("id = 1", ONE),
        ("ID<=-5", Compare("id", "<=", -5)),
        ("id <> 1", Not(ONE)),
        ("id != 1", Not(ONE)),
        ("`a b` > 3", Compare("a b", ">", 3)),
        ("name = 'it''s'", Compare("Name", "=", "it's")),
        ("x = 1", Compare("x", "=", 1.0)),
        ("x < 1e3", Compare("x", "<", 1000.0)),
        ("n >= -1.50", Compare("n", ">=", Decimal("-1.50"))),
        ("day = DATE '1970-01-02'", Compare("day", "=", 1)),
        ("at = timestamp '1970-01-01 00:00:01.000002Z'", Compare("at", "=", 1_000_002)),
        ("at = TIMESTAMP '1970-01-01T02:00:00+02:00'", Compare("at", "=", 0)),
        ("ok = true", Compare("ok", "=", True)),
        ("id = NULL", Compare("id", "=", None)),
        ("id IN (1, 2, NULL)", In("id", (1, 2, None))),
        ("id NOT IN (1)", Not(In("id", (1,)))),
        ("id between 1 and 3", And((Compare("id", ">=", 1), Compare("id", "<=", 3)))),
        ("id is null", IsNull("id")),
        ("id IS NOT NULL", Not(IsNull("id"))),
        ("name LIKE 'ab%'", StartsWith("Name", "ab")),
        ("name NOT LIKE 'ab%'", Not(StartsWith("Name", "ab"))),
        ("id = 1 OR id = 1 AND NOT (id = 1)", Or((ONE, And((ONE, Not(ONE)))))),
        ("NOT NOT id = 1", ONE),
    ],
)
def test_a_text_is_the_predicate_that_it_says(text: str, predicate: Predicate) -> None:
    """Operators, precedence and literals are SQL's, and a literal is a value of its column's type."""
    assert parse_where(text, TYPES) == predicate


@pytest.mark.parametrize(
    "text",
    [
        *("other = 1", "other IS NULL", "other = NULL", "id = 1.5", "id = '1'", "name = 1", "ok = 1", "x = 'a'"),
        *("day = '1970-01-01'", "id = DATE '1970-01-01'", "name LIKE '%a'", "name LIKE 'a_%'", "id LIKE '1%'"),
        *("id IN (1, 'a')", "n = 'a'"),
    ],
)
def test_what_is_not_known_keeps_every_object(text: str) -> None:
    """Another column, or a literal that Spark would cast, is no error and skips nothing."""
    assert parse_where(text, TYPES) == Unsupported()


@pytest.mark.parametrize(
    "text",
    [
        *("", "id", "id =", "= 1", "id = 1 id", "id = 1 AND", "(id = 1", "id = 1)", "id IN ()", "id IN 1", "id IS 1"),
        *(
            "id NOT = 1",
            "id = 'a",
            "id = 1; DROP",
            "id BETWEEN 1",
            "day = DATE 'x'",
            "at = TIMESTAMP 5",
            "(" * 200 + "id = 1",
        ),
        "id = 1" + " OR id = 1" * 3000,
    ],
)
def test_another_text_is_a_usage_error(text: str) -> None:
    """What is no predicate of this form is refused, and nothing of its literals is told."""
    with pytest.raises(click.UsageError, match="--where"):
        parse_where(text, TYPES)
