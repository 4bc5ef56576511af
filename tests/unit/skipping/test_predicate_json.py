"""Predicates as the jar sends them."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest

from sparkcrypt.errors import BridgeError
from sparkcrypt.skipping.query.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unsupported,
    read_predicate,
)

TYPES = {
    "i": "integer",
    "d": "double",
    "n": "decimal(12,2)",
    "s": "string",
    "x": "binary",
    "b": "boolean",
    "da": "date",
}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ('["=", "i", 5]', Compare("i", "=", 5)),
        ('["<=", "d", "-0.0"]', Compare("d", "<=", -0.0)),
        ('[">", "d", "1.0E300"]', Compare("d", ">", 1e300)),
        ('["=", "n", "12.50"]', Compare("n", "=", Decimal("12.50"))),
        ('["=", "x", "/wA="]', Compare("x", "=", b"\xff\x00")),
        ('["=", "b", true]', Compare("b", "=", True)),
        ('["<", "da", 19000]', Compare("da", "<", 19000)),
        ('["=", "s", null]', Compare("s", "=", None)),
        ('["in", "s", ["a", null]]', In("s", ("a", None))),
        ('["null", "other"]', IsNull("other")),
        ('["starts", "s", "a"]', StartsWith("s", "a")),
        (
            '["and", [["or", [["=", "i", 1], ["unknown"]]], ["not", ["null", "i"]]]]',
            And((Or((Compare("i", "=", 1), Unsupported())), Not(IsNull("i")))),
        ),
    ],
)
def test_forms_are_read(form: str, expected: Predicate) -> None:
    """Each form is the predicate that it stands for, its literals of their columns' types."""
    assert read_predicate(json.loads(form), TYPES) == expected


def test_nan_and_infinity_have_words() -> None:
    """What JSON has no numbers for comes as Java's words."""
    found = read_predicate(["in", "d", ["NaN", "-Infinity"]], TYPES)
    assert isinstance(found, In)
    assert math.isnan(float(str(found.literals[0])))
    assert found.literals[1] == -math.inf


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        ["="],
        ["=", "i"],
        ["!=", "i", 5],
        ["=", "unheard", 5],
        ["=", "i", "5-secret"],
        ["=", "i", True],
        ["=", "d", 5],
        ["=", "d", "secret"],
        ["=", "n", "secret"],
        ["=", "n", "NaN"],
        ["=", "x", "secret!"],
        ["=", "s", 5],
        ["in", "s", "secret"],
        ["in", "s", [5]],
        ["starts", "s", None],
        ["and", ["secret"]],
        ["not"],
    ],
)
def test_what_is_no_form_is_refused_without_its_literal(form: Any) -> None:
    """A form or literal that no jar sends is an error, which does not repeat what somebody asked for."""
    with pytest.raises(BridgeError) as caught:
        read_predicate(form, TYPES)
    assert "secret" not in str(caught.value)
