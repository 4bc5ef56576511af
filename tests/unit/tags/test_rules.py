"""What of a rule is put into a table, taken back or held back, without a catalog."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt.errors import PlanError
from sparkcrypt.names import RULE_MARK, TABLE_UUID, TAGS_PREFIX
from sparkcrypt.policy.load import policy_from_text, rules_from_text
from sparkcrypt.spark.tables import table_rules, tagging
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tables.table_rules import (
    Effect,
    RuleChange,
    TableState,
    Tags,
    _unite_rules,
    compare_rule,
    rule_changes,
    rule_lines,
)
from sparkcrypt.spark.tables.tagging import as_policy_writes, refuse_formats_without_keys

POLICY = """
version: 1
key_service: {type: local, path: keys}
footer: {key: footer}
untagged: plaintext
tags:
  open: plaintext
  pii: {key: pii}
  contact: {key: contact}
  public: plaintext
"""
LAST = policy_from_text(POLICY, where="policy.yaml", base="/")
BY_FOOTER = policy_from_text(POLICY.replace("untagged: plaintext", "untagged: footer_key"), where="p", base="/")


def compare(present: Tags, overlay: Tags, laid: Tags, effect: Effect) -> RuleChange:
    """Return the change for a table with these tags."""
    return compare_rule(TableState(present, laid), overlay, LAST, effect=effect)


def held(change: RuleChange) -> list[str]:
    """Return the lines of what is held back."""
    return [entry.line() for entry in change.held]


def test_what_an_earlier_file_put_is_removed_on_demand_only() -> None:
    """A tag that the file no longer has stays, and is named; with ``whole`` it goes, and a table's own tag stays."""
    guarded = compare({"email": ("own", "pii")}, {}, {"email": ("pii",)}, "guarded")
    assert (guarded.is_needed, held(guarded)) == (False, ["email: own: tags would be removed"])
    assert json.loads(guarded.mark)["tags"] == {"email": ["pii"]}
    whole = compare({"email": ("own", "pii")}, {}, {"email": ("pii",)}, "whole")
    assert (whole.tags, whole.taken, whole.held) == ({}, {"email": ("own",)}, ())
    assert json.loads(whole.mark)["tags"] == {}
    assert not compare({"email": ("own", "pii")}, {}, {"email": ("pii",)}, "add").is_needed


def test_a_tag_that_replaces_another_is_put_before_that_is_removed() -> None:
    """A column whose tag the file changed has both tags until the old one is removed, and is never without."""
    state = ({"email": ("pii",)}, {"email": ("contact",)}, {"email": ("pii",)})
    guarded, whole = compare(*state, "guarded"), compare(*state, "whole")
    assert guarded.tags == {"email": ("pii", "contact")}
    assert held(guarded) == ["email: contact: tags would be removed"]
    assert json.loads(guarded.mark)["tags"] == {"email": ["pii", "contact"]}
    assert (whole.tags, whole.taken) == ({}, {"email": ("contact",)})
    assert json.loads(whole.mark)["tags"] == {"email": ["contact"]}


def test_a_tag_that_means_plaintext_is_held_back_where_it_comes_first() -> None:
    """By the policy's order ``open`` would take the key of a column, ``public`` would not; runs go by the policy."""
    weaker = compare({"email": ("pii",)}, {"email": ("open",)}, {}, "guarded")
    assert (weaker.is_needed, held(weaker)) == (False, ["email: pii,open: it would be plaintext"])
    assert json.loads(weaker.mark)["tags"] == {}
    for effect in ("add", "whole"):
        assert compare({"email": ("pii",)}, {"email": ("open",)}, {}, effect).tags == {"email": ("pii", "open")}
    for name in ("public", "contact"):
        assert held(compare({"email": ("pii",)}, {"email": (name,)}, {}, "guarded")) == []
    assert held(compare({}, {"email": ("open",)}, {}, "guarded")) == []


def test_an_untagged_column_under_the_footer_key_is_encrypted() -> None:
    """Where the policy encrypts untagged columns, a tag that means plaintext is held back for them too."""
    change = compare_rule(TableState({}, {}), {"email": ("public",)}, BY_FOOTER, effect="guarded")
    assert held(change) == ["email: public: it would be plaintext"]


def test_without_a_policy_a_column_with_tags_gets_no_others() -> None:
    """What a tag means is not known then; a column without tags gets its first ones."""
    state = TableState({"email": ("own",)}, {})
    change = compare_rule(state, {"email": ("pii",), "phone": ("pii",)}, None, effect="guarded")
    assert change.tags == {"phone": ("pii",)}
    assert held(change) == ["email: own,pii: without --policy it is not known whether it would be plaintext"]
    assert not compare_rule(state, {"email": ("own",)}, None, effect="guarded").held


@pytest.mark.parametrize(
    ("effect", "required", "reasons"),
    [("add", None, []), ("guarded", None, ["encryption would no longer be required"]), ("whole", False, [])],
)
def test_a_requirement_is_kept_unless_it_is_to_be_removed(
    effect: Effect, required: bool | None, reasons: list[str]
) -> None:
    """A requirement that a rule made ends with ``whole`` alone; one that the owner made is the owner's."""
    by_rule = compare_rule(TableState({}, {}, required=True, required_by_rule=True), {}, LAST, effect=effect)
    assert (by_rule.require_encryption, held(by_rule)) == (required, reasons)
    assert json.loads(by_rule.mark)["require_encryption"] is (required is None)
    own = compare_rule(TableState({}, {}, required=True), {}, LAST, effect=effect)
    assert (own.require_encryption, own.held) == (None, ())


def test_rules_of_one_table_from_several_files_are_united() -> None:
    """Tags and requirements add up; a rule that only observes adds nothing to one that is in force."""
    files = (
        "sales.t: {enforce: false, tags: {email: open}}",
        "sales.t: {tags: {email: pii}}",
        "spark_catalog.Sales.T: {require_encryption: true, tags: {email: [contact, pii], name: pii}}",
        "sales.u: {tags: {a: pii}}",
        "sales.t: {enforce: false, tags: {name: open}}",
    )
    rules = [rule for text in files for rule in rules_from_text(text, where="f.yaml", base="/")]
    first, second = _unite_rules(rules)
    assert dict(first.tags) == {"email": ("pii", "contact"), "name": ("pii",)}
    assert (first.name, first.require_encryption, second.name) == ("sales.t", True, "sales.u")


SPARK: Any = None
"""No session: what is compared is in the values of the table."""


def table(laid: Tags) -> Table:
    """Return a table whose columns have the tags that a rule put there."""
    kind = {"type": "struct", "fields": [{"name": "email", "type": "string"}, {"name": "name", "type": "string"}]}
    options = {f"{TAGS_PREFIX}{column}": ",".join(names) for column, names in laid.items()} | {TABLE_UUID: "u"}
    mark = {RULE_MARK: json.dumps({"require_encryption": False, "tags": laid})}
    return Table("sales", "t", "MANAGED", "parquet", "", "/t", json.dumps(kind), (), options, mark, "")


class Metastore:
    """A catalog of one table."""

    def __init__(self, only: Table) -> None:
        self._only = only

    def find(self, name: str) -> Table | None:
        """Return the table if the name is its own."""
        return self._only if name.lower() == self._only.full_name else None

    def find_tables_with_text(self, text: str) -> list[Table]:
        """Return the table if a rule left its mark there."""
        return [self._only] if text in self._only.properties else []


def test_a_rule_lacks_only_what_it_would_add() -> None:
    """What another file put there is not missing: a run, which only adds, would never end that."""
    policy = policy_from_text(f"{POLICY}tables:\n  sales.t: {{tags: {{EMAIL: pii}}}}\n", where="p", base="/")
    assert rule_lines(SPARK, table({"name": ("contact",)}), policy) == ("email: pii",)
    assert rule_lines(SPARK, table({"email": ("pii",), "name": ("contact",)}), policy) == ()


def test_a_table_that_no_file_names_any_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses what earlier files put there with ``remove`` alone, and is listed without it."""
    monkeypatch.setattr(table_rules, "Catalog", lambda _: Metastore(table({"email": ("pii",)})))
    (change,), absent = rule_changes(SPARK, rules_from_text("a.b: {}", where="f", base="/"), LAST, remove=False)
    assert (change.is_needed, held(change), absent) == (False, ["email: no tags: tags would be removed"], ("a.b",))
    (change,), _ = rule_changes(SPARK, (), LAST, remove=True)
    assert (change.table, change.taken) == ("sales.t", {"email": ()})


def test_a_column_in_two_spellings_has_the_tags_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources spell columns as they like; the last one does not replace the others."""
    monkeypatch.setattr(table_rules, "Catalog", lambda _: Metastore(table({})))
    rules = rules_from_text("sales.t: {tags: {EMAIL: pii, Email: contact}}", where="f", base="/")
    (change,), _ = rule_changes(SPARK, rules, LAST, remove=False)
    assert change.tags == {"email": ("pii", "contact")}


def test_tags_are_put_as_the_policy_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule in another case is the policy's own, so that the next comparison finds nothing to do."""
    rules = rules_from_text("sales.t: {tags: {email: PII}}", where="f", base="/")
    monkeypatch.setattr(table_rules, "Catalog", lambda _: Metastore(table({})))
    (change,), _ = rule_changes(SPARK, rules, LAST, remove=False)
    assert change.tags == {"email": ("pii",)}
    monkeypatch.setattr(table_rules, "Catalog", lambda _: Metastore(table({"email": ("pii",)})))
    assert rule_changes(SPARK, rules, LAST, remove=False) == ((), ())


def test_a_tag_in_another_case_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever typed it learns how the policy writes it."""
    tagging._note_case.cache_clear()
    assert as_policy_writes(("Pii", "pii", "nosuch"), LAST) == ("pii", "nosuch")
    assert as_policy_writes(("Pii",), LAST) == ("pii",)
    assert caplog.messages == ["note: the tag Pii is taken for pii, as the policy writes it"]


def test_a_view_is_refused_with_the_way_to_its_tables() -> None:
    """It has no files; what is tagged below it follows into what is written from it."""
    view = replace(table({}), kind="VIEW")
    with pytest.raises(PlanError, match=r"sales\.t is a view, .*; allowed: tables whose files are parquet; .*SHOW"):
        refuse_formats_without_keys(view, None)


def test_an_unknown_tag_is_refused_with_the_one_that_may_be_meant() -> None:
    """And with all that are allowed."""
    with pytest.raises(PlanError, match=r"'contcat'; did you mean 'contact'\? allowed: open, pii, contact, public"):
        tagging._refuse_unknown({("email",): ("contcat",)}, LAST)
