"""Which columns lack the tags of what is written to them, and what the policy says of that."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.decide.judge_write import check_inherited, check_lost
from sparkcrypt.errors import BridgeError, PlanError
from tests.unit.decide.requests import PREFIX, TABLE, policy, schema


def request(written: str, table: str, **changes: Any) -> dict[str, Any]:
    """Return a request about a write of some columns into the table a.b."""
    return {
        "policy": policy(),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": written,
        "table_schema": table,
        "sources": ["x.y"],
        **changes,
    }


def lacking(**changes: Any) -> dict[str, list[str]]:
    """Return the columns that lack tags when ``id``, ``ssn`` (pii) and ``pay`` (finance) are written."""
    written = schema(id=None, ssn="pii", pay="finance")
    answer = check_inherited(request(written, schema(id=None, ssn=None, pay=None), **changes))
    return {".".join(column["path"]): column["tags"] for column in answer["columns"]}


def test_each_column_that_would_have_another_key_by_its_own_tags() -> None:
    """Tags count wherever the table has them, in whatever case; columns that the write lacks do not matter."""
    assert lacking() == {"ssn": ["pii"], "pay": ["finance"]}
    assert lacking(properties=TABLE) == {}
    assert lacking(table_schema=schema(id=None, SSN="pii", pay=None, more="pii")) == {"pay": ["finance"]}
    assert lacking(policy=policy(tables={"a.b": {"tags": {"ssn": "pii"}}})) == {"pay": ["finance"]}
    assert lacking(policy=policy(tables={"a.b": {"enforce": False}})) == {}
    assert lacking(policy=policy(untagged="deny")) == {"ssn": ["pii"], "pay": ["finance"]}
    assert lacking(policy=policy(untagged="footer_key")) == {"ssn": ["pii"], "pay": ["finance"]}


def test_order_of_the_policy_decides_whether_the_own_tag_is_enough() -> None:
    """A tag that comes first keeps its key, whatever comes to it; one that comes later does not."""
    assert lacking(table_schema=schema(id=None, ssn=None, pay="pii")) == {"ssn": ["pii"]}
    assert lacking(table_schema=schema(id=None, ssn="finance", pay="public")) == {"ssn": ["pii"], "pay": ["finance"]}


def test_plaintext_tag_is_nothing_that_a_column_can_lack() -> None:
    """Only keys matter: what encrypts nothing is not missed."""
    assert check_inherited(request(schema(ssn="public"), schema(ssn=None)))["columns"] == []


@pytest.mark.parametrize(
    ("of_all", "of_table", "required", "mode"),
    [
        (None, None, False, "observe"),
        (None, None, True, "refuse"),
        ("add", None, True, "add"),
        ("refuse", None, False, "refuse"),
        ("refuse", "observe", True, "observe"),
        ("observe", "refuse", False, "refuse"),
    ],
)
def test_table_goes_before_the_policy_and_this_before_the_default(
    of_all: str | None, of_table: str | None, required: bool, mode: str
) -> None:
    """A refusal names table, column, tag, source and the command that tags the column."""
    rule = {"inherit": of_table} if of_table else {}
    said = policy(tables={"a.b": rule}, **({"inherit": of_all} if of_all else {}))
    properties = {PREFIX + "table": "a.b", PREFIX + "tags.open": "pii"}
    if required:
        properties[PREFIX + "require_encryption"] = "true"
    asked = request(schema(ssn="pii"), schema(ssn=None, open=None), policy=said, properties=properties)
    if mode != "refuse":
        assert check_inherited(asked)["mode"] == mode
        return
    why = "'inherit: refuse'" if of_all or of_table else "the table requires encryption"
    with pytest.raises(
        PlanError, match=rf"a\.b: column ssn .* tag 'pii' \(read from x\.y\).*{why}.*`sparkcrypt tags set a\.b ssn pii`"
    ):
        check_inherited(asked)


def test_property_keeps_the_tags_that_it_has() -> None:
    """What would be added stands beside what is there."""
    properties = {PREFIX + "table": "a.b", PREFIX + "tags.ssn": "public"}
    (column,) = check_inherited(request(schema(ssn="pii"), schema(ssn=None), properties=properties))["columns"]
    assert (column["property"], column["value"]) == (PREFIX + "tags.ssn", "public,pii")


def lost(column: str = "ssn", *tags: str, **changes: Any) -> dict[str, Any]:
    """Return a request about a value that may have lost tags, in a table that requires encryption."""
    return {
        "policy": policy(tables={"a.b": {"require_encryption": True}}),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": schema(id=None, ssn=None, pay="finance"),
        "table_schema": None,
        "lost": [{"column": column, "from": "x.y.ssn", "tags": list(tags or ("pii",))}],
        **changes,
    }


def test_values_that_may_have_lost_a_tag_are_refused_where_encryption_is_required() -> None:
    """The message names table, column, where the name was seen, and what to do."""
    with pytest.raises(PlanError, match=r"a\.b: column ssn is written .* name of x\.y\.ssn, .* tag 'pii'"):
        check_lost(lost())
    by_property = {PREFIX + "table": "a.b", PREFIX + "require_encryption": "true"}
    with pytest.raises(PlanError, match="column ssn is written"):
        check_lost(lost(policy=policy(), properties=by_property))
    with pytest.raises(PlanError, match=r"sparkcrypt tags set a\.b ssn pii"):
        check_lost(lost(table_schema=schema(id=None, ssn=None)))


@pytest.mark.parametrize(
    "request_",
    [
        lost(policy=policy()),
        lost(policy=policy(tables={"a.b": {"require_encryption": True, "enforce": False}})),
        lost(schema=schema(ssn="pii")),
        lost(schema=schema(ssn="public")),
        lost(table_schema=schema(SSN="public")),
        lost(properties={PREFIX + "table": "a.b", PREFIX + "tags.ssn": "finance"}),
        lost("ssn", "public"),
        lost("ssn", "unknown"),
        lost("ssn", "!masked"),
        lost(lost=[]),
    ],
)
def test_values_that_may_have_lost_a_tag_pass(request_: dict[str, Any]) -> None:
    """Without such a rule, under any tag of their own, and where the tag encrypts nothing or is not known."""
    check_lost(request_)


def test_lost_values_that_are_no_list() -> None:
    """A jar of another version is told so."""
    with pytest.raises(BridgeError, match="'lost' is 'x'; allowed: a list of mappings"):
        check_lost(lost(lost="x"))
