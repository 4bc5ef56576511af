"""What a principal would get: rights and results by column, with partitions, masks, the footer and outages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt.decide.explain_access import ColumnAccess, explain_access
from sparkcrypt.errors import KeyAccessDeniedError, KeyServiceUnavailableError
from sparkcrypt.keys.service import Decision
from sparkcrypt.plan import build_plan
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.policy.model import OnDenied
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.model import unite_tags

MONTHS = [{"day": "2026-01-05"}, {"day": "2026-01-06"}, {"day": "2026-02-07"}, {"day": "no date"}]


def explained(
    said: dict[str, Any],
    on_denied: OnDenied | None = None,
    partitions: list[dict[str, str]] = MONTHS,
    *,
    strict_projection: bool | None = None,
    policy_is_strict: bool = False,
) -> dict[str, list[ColumnAccess]]:
    """Return what a principal would get of a table, by column; a key that is not named may be used."""
    policy = replace(_policy(), strict_projection=policy_is_strict)
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {"tags": [tag]} if tag else {}}
        for name, tag in (("id", None), ("email", "pii"), ("pay", "pay"), ("secret", "strict"), ("soft", "soft"))
    ]
    schema = schema_from_spark(json.dumps({"type": "struct", "fields": fields}))
    plan = build_plan(schema, unite_tags(schemas=[schema]), policy, table="d.t", partition_columns=["day"])

    def decide(key_id: str) -> Decision | None:
        answer = said.get(key_id, "allowed")
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    found: dict[str, list[ColumnAccess]] = {}
    wanted: dict[str, Any] = {"on_denied": on_denied, "strict_projection": strict_projection}
    for entry in explain_access(plan, policy, decide, partitions=partitions, **wanted):
        found.setdefault(entry.column, []).append(entry)
    return found


def _policy() -> Policy:
    return policy_from_document(
        {
            "version": 1,
            "key_service": {"type": "own"},
            "footer": {"key": "footer"},
            "untagged": "plaintext",
            "tags": {
                "pii": {"key": "pii"},
                "pay": {"key": "pay-{day:%Y-%m}"},
                "strict": {"key": "strict", "on_denied": "error"},
                "soft": {"key": "soft", "on_denied": "mask"},
            },
        },
        locate=lambda _: "here",
    )


def results(found: dict[str, list[ColumnAccess]]) -> dict[str, str]:
    """Return what each column gives, where it has one key."""
    return {name: entries[0].result for name, entries in found.items() if name != "pay"}


def test_every_right_gives_every_value() -> None:
    """With all keys every column is read, and a column without key needs none."""
    found = explained({})
    assert results(found) == {"id": "values", "email": "values", "secret": "values", "soft": "values"}
    assert (found["id"][0].right, found["id"][0].key) == ("no key needed", None)


@pytest.mark.parametrize(
    ("on_denied", "expected"),
    [
        (None, {"email": "error", "secret": "error", "soft": "null"}),
        ("mask", {"email": "null", "secret": "error", "soft": "null"}),
        ("error", {"email": "error", "secret": "error", "soft": "error"}),
    ],
)
@pytest.mark.parametrize("said", ["denied", "shredded"])
def test_a_refused_key_is_an_error_or_a_null(said: str, on_denied: OnDenied | None, expected: dict[str, str]) -> None:
    """Session and tag decide as they do in a read: a tag's error outranks, its mask yields to the session's error."""
    found = explained(dict.fromkeys(("pii", "strict", "soft"), said), on_denied)
    assert results(found) == {"id": "values", **expected}
    assert {found[name][0].right for name in expected} == {"missing" if said == "shredded" else said}


def test_template_by_partition() -> None:
    """A template's column is told month by month; a value that makes no key has no files to read."""
    found = explained({"pay-2026-02": "denied"})["pay"]
    assert [(entry.key, entry.result, len(entry.partitions or ())) for entry in found] == [
        ("pay-2026-01", "values", 2),
        ("pay-2026-02", "error", 1),
    ]
    empty = explained({"pay-{day:%Y-%m}": AssertionError("asked")}, partitions=[])["pay"]
    assert [(entry.result, entry.partitions) for entry in empty] == [("values", ())]


@pytest.mark.parametrize("said", ["denied", "shredded", KeyServiceUnavailableError("away")])
def test_without_the_footer_nothing_is_read(said: object) -> None:
    """A refused footer key makes each column an error, where nulls are asked for too."""
    found = explained({"footer": said}, "mask")
    assert set(results(found).values()) == {"error"}
    assert "footer" in found["id"][0].why


def test_an_outage_is_no_refusal() -> None:
    """A key service that does not answer is said to be so, and gives no nulls."""
    entry = explained({"pii": KeyServiceUnavailableError("away")}, "mask")["email"][0]
    assert (entry.right, entry.result) == ("unavailable", "error")
    entry = explained({"pii": KeyAccessDeniedError("no")}, "mask")["email"][0]
    assert (entry.right, entry.result) == ("denied", "null")


def test_what_cannot_be_told_is_not_claimed() -> None:
    """A key service without a word on rights leaves the result open."""
    entry = explained({"pii": None})["email"][0]
    assert (entry.right, entry.result) == ("undecided", "not known")


@pytest.mark.parametrize(("asked", "policy_is_strict"), [(True, False), (None, True), (False, True)])
def test_naming_a_null_under_strict_projection_is_an_error(asked: bool | None, policy_is_strict: bool) -> None:
    """A star gives null and naming gives an error; what the policy asks for, no session takes back."""
    found = explained({"pii": "denied"}, "mask", strict_projection=asked, policy_is_strict=policy_is_strict)
    assert (found["email"][0].result, found["email"][0].named) == ("null", "error")
    assert "strict_projection" in found["email"][0].why
    assert {found[name][0].named for name in ("id", "secret", "soft")} == {"values"}


def test_naming_gives_what_a_star_gives_without_strict_projection() -> None:
    """Where nobody asks for it, a named column is what it is in a star."""
    found = explained({"pii": "denied", "strict": "denied"}, "mask")
    assert {name: entries[0].named for name, entries in found.items()} == {
        name: entries[0].result for name, entries in found.items()
    }
