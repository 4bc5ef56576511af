"""In which order units and tables come."""

from __future__ import annotations

from typing import Any

from sparkcrypt.ledger.unit import Unit
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.runs.rewrite.schedule import order_units, table_rank
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.model import TaggedColumn

COLUMNS = {"id": None, "email": "pii", "pay": "finance", "shop": "public"}


def policy() -> Policy:
    """Return a policy in which finance comes before pii."""
    document: dict[str, Any] = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "run_state": "/state",
        "tags": {"public": "plaintext", "finance": {"key": "fin"}, "pii": {"key": "pii"}},
    }
    return policy_from_document(document, locate=lambda _: "policy")


def plan(columns: dict[str, str | None]) -> EncryptionPlan:
    """Return the plan of a table of text columns with their tags."""
    fields = [{"name": name, "type": "string"} for name in columns]
    tagged = [TaggedColumn((name,), (tag,), "table property") for name, tag in columns.items() if tag]
    return build_plan(schema_from_spark({"type": "struct", "fields": fields}), tagged, policy())


def survey(name: str, total: int, *columns: str | None) -> UnitSurvey:
    """Return a unit of one file whose columns drift."""
    drift = tuple(Drift("missing", f"{name}/f", column, "") for column in columns)
    return UnitSurvey(Unit(name, f"/t/{name}", None, name, {}), Amount(1, total), drift)


UNITS = [
    survey("a", 5, "email"),
    survey("b", 9, "pay", "email"),
    survey("c", 7, "email"),
    survey("d", 9, "pay"),
    survey("e", 1, "id"),
    survey("f", 2, None),
]


def test_units_come_by_the_policys_order_of_tags() -> None:
    """Equals keep their order; a drift of the whole file concerns its first tag."""
    assert "".join(unit.name for unit in order_units(UNITS, plan(COLUMNS), policy())) == "fbdace"


def test_tables_come_by_their_first_tag_that_encrypts() -> None:
    """A tag that means plaintext does not count, and a table without tags comes last."""
    ranks = [table_rank(plan(dict.fromkeys(("id", tag or "x"), tag)), policy()) for tag in ("finance", "pii", "public")]
    assert ranks == sorted(ranks) and len(set(ranks)) == 3
    assert table_rank(plan(COLUMNS), policy()) == ranks[0]
    assert table_rank(plan({"id": None}), policy()) == ranks[2]
