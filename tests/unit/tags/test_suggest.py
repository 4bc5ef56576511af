"""Which columns look personal, by their names and by the form of values; and the file for `tags apply`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.cli.tables import suggest as command
from sparkcrypt.policy.load import rules_from_text
from sparkcrypt.tags.suggest import KINDS, Suggestion, TypedColumn, list_columns, suggest
from tests.unit.cli.conftest import POLICY, run


def kind_of(name: str, kind: str = "string") -> str | None:
    """Return the kind that a column's name tells; dots part the names of nested ones."""
    found = list(suggest([TypedColumn(tuple(name.split(".")), kind)], {}))
    return found[0].kind if found else None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("email", "email"),
        ("customerEMailAddress", "email"),
        ("e_mail", "email"),
        ("last_name", "name"),
        ("LASTNAME", "name"),
        ("lastName", "name"),
        ("customer.name", "name"),
        ("product.name", None),
        ("file_name", None),
        ("name", None),
        ("phones.element", "phone"),
        ("dateOfBirth", "birth"),
        ("DOB", "birth"),
        ("ssn", "national_id"),
        ("session", None),
        ("client_ip", "ip_address"),
        ("ip_address", "ip_address"),
        ("shipping", None),
        ("billing_address", "address"),
        ("zip_code", "address"),
        ("panel", None),
        ("company", None),
        ("iban", "account"),
        ("account_id", None),
        ("card_number", "payment_card"),
        ("salary", "pay"),
        ("amount", None),
        ("latitude", "location"),
        ("latest", None),
        ("gender", "special"),
        ("pwd", "secret"),
    ],
)
def test_a_name_tells_by_whole_words(name: str, kind: str | None) -> None:
    """In snake case and camel case; a part of a word tells nothing."""
    assert kind_of(name) == kind


def test_a_flag_tells_nothing_of_the_value() -> None:
    """Whether there is an e-mail address is none."""
    assert (kind_of("has_email", "boolean"), kind_of("has_email")) == (None, "email")


SAMPLES: dict[str, list[str]] = {
    "email": ["a@example.org", "b.c@example.com"],
    "account": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"],
    "payment_card": ["4111 1111 1111 1111", "5500-0000-0000-0004"],
    "national_id": ["078-05-1120"],
    "phone": ["+41 44 668 18 00", "+1 (202) 555-0143"],
    "ip_address": ["192.0.2.1", "2001:db8::1"],
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_values_tell_by_their_form_and_check_digits(kind: str) -> None:
    """Four of five suffice; the reason counts values, and has none."""
    values = [*(SAMPLES[kind] * 8)[:8], "-", "?"]
    (found,) = suggest([TypedColumn(("c1",), "string")], {("c1",): values})
    assert (found.column, found.kind) == ("c1", kind)
    assert found.why.startswith("8 of 10 sampled values have the form of ")
    assert not any(value in found.why for value in values[:8])
    assert list(suggest([TypedColumn(("c1",), "string")], {("c1",): [*values[:7], "-", "?", "?"]})) == []


@pytest.mark.parametrize(
    "values",
    [
        ["a@example.org"] * 4,
        ["2026-11-27"] * 9,
        ["4111 1111 1111 1112"] * 9,
        ["DE88370400440532013000"] * 9,
        ["1234567890123456"] * 9,
        ["hello"] * 9,
        [""] * 9,
    ],
)
def test_few_values_or_other_forms_tell_nothing(values: list[str]) -> None:
    """Dates, ids, and numbers with wrong check digits are none of these."""
    assert list(suggest([TypedColumn(("c1",), "string")], {("c1",): values})) == []


def test_values_count_before_the_name() -> None:
    """What is in a column is more than what it is called."""
    (found,) = suggest([TypedColumn(("phone",), "string")], {("phone",): ["a@example.org"] * 5})
    assert found.kind == "email"


def test_nested_columns_are_listed_by_their_paths() -> None:
    """Samples are of texts outside of arrays and maps alone."""
    struct = {"type": "struct", "fields": [{"name": "city", "type": "string"}, {"name": "no", "type": "long"}]}
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "varchar(9)"},
        {"name": "home", "type": struct},
        {"name": "phones", "type": {"type": "array", "elementType": "string"}},
        {"name": "by", "type": {"type": "map", "keyType": "string", "valueType": "date"}},
    ]
    found = list_columns(json.dumps({"type": "struct", "fields": fields}))
    assert [(".".join(column.path), column.kind, column.has_texts) for column in found] == [
        ("id", "varchar(9)", True),
        ("home.city", "string", True),
        ("home.no", "long", False),
        ("phones.element", "string", False),
        ("by.key", "string", False),
        ("by.value", "date", False),
    ]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with two columns that look personal; no session starts."""
    suggestions = [Suggestion("e%2Email", "email", "its name has 'email'"), Suggestion("ssn", "national_id", "…")]
    monkeypatch.setattr(command, "_look", lambda *_: ("sales.T", suggestions, ["day looks personal"]))


@pytest.mark.usefixtures("found")
def test_the_output_is_a_file_for_tags_apply(tmp_path: Path) -> None:
    """On stdout or in a file; the reasons are on stderr."""
    done = run("tags", "suggest", "sales.T", "--map", "email=contact")
    (rule,) = rules_from_text(done.output, where="f", base="/")
    assert (rule.name, dict(rule.tags)) == ("sales.t", {"e%2Email": ("contact",), "ssn": ("pii",)})
    assert "e%2Email: contact: email: its name has 'email'\n" in done.errors and "note: day looks" in done.errors
    written = run("tags", "suggest", "sales.T", "--output", tmp_path / "f.yaml")
    assert written.output == f"{tmp_path / 'f.yaml'}: 2 columns of sales.T\n"
    assert rules_from_text((tmp_path / "f.yaml").read_text(), where="f", base="/")


@pytest.mark.usefixtures("found")
def test_tags_are_those_of_the_policy(tmp_path: Path) -> None:
    """One that it does not define is refused with those that it does; in another case it is taken."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ("tags", "suggest", "sales.T", "--policy", tmp_path / "policy.yaml")
    assert run(*words, "--tag", "PII", "--json").document["suggestions"][1] == {
        "column": "ssn",
        "kind": "national_id",
        "why": "…",
        "tags": ["pii"],
    }
    refused = run(*words, "--tag", "secret")
    assert (refused.code, "'secret'; allowed: pii, contact, public; name one by --tag" in refused.errors) == (65, True)


@pytest.mark.parametrize("word", ["email", "email=", "mail=pii"])
def test_a_kind_without_a_tag_or_that_is_none_is_a_usage_error(word: str) -> None:
    """All kinds are named."""
    done = run("tags", "suggest", "t", "--map", word)
    assert (done.code, KINDS[0] in done.errors) == (64, True)
