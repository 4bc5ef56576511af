"""The plan: the same for the same input in any order, by the policy's precedence, with all problems at once."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.plan import EncryptionPlan, build_plan, compare_tags, plan_columns
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.schema import Schema, schema_from_spark, split_dotted
from sparkcrypt.tags.model import Source, TaggedColumn, tags_of_schema

SOURCES: list[Source] = ["schema metadata", "table property", "avro schema", "overlay"]


def policy(**changes: Any) -> Policy:
    """Return a policy with four tags."""
    document = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "run_state": "/state",
        "tags": {
            "pii": {"key": "pii", "history": ["old:1", "plaintext"]},
            "finance": {"key": "fin"},
            "monthly": {"key": "m-{day:%Y-%m}"},
            "public": "plaintext",
        },
        **changes,
    }
    return policy_from_document(document, locate=lambda _: "policy")


def nested() -> Schema:
    """Return a schema with a struct, an array and a map of structs."""
    person = {"type": "struct", "fields": [{"name": "ssn", "type": "string"}, {"name": "age", "type": "long"}]}
    return schema_from_spark(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "person", "type": person},
                {"name": "people", "type": {"type": "array", "elementType": person}},
                {"name": "kv", "type": {"type": "map", "keyType": "string", "valueType": person}},
            ],
        }
    )


def tagged(path: str, *tags: str, source: Source = "table property") -> TaggedColumn:
    """Return one tagged column."""
    return TaggedColumn(split_dotted(path), tags, source)


def plan(*columns: TaggedColumn, **options: Any) -> EncryptionPlan:
    """Plan the nested schema."""
    rules, required = options.pop("policy", policy()), options.pop("require_encryption", False)
    return build_plan(nested(), columns, rules, **options).require(required)


def keys(made: EncryptionPlan) -> dict[str, str | None]:
    """Return encrypted columns with the texts of their keys."""
    return {column.leaf.dotted: column.key.text if column.key else None for column in made.encrypted}


def problems(*columns: TaggedColumn, **options: Any) -> list[str]:
    """Return the lines of the error that planning gives."""
    with pytest.raises(PlanError) as caught:
        plan(*columns, **options)
    return str(caught.value).splitlines()


def test_tag_of_a_group_covers_its_leaves() -> None:
    """A tag on a struct, array or map covers every leaf below it, keys of maps included."""
    assert set(keys(plan(tagged("person", "pii")))) == {"person.ssn", "person.age"}
    assert set(keys(plan(tagged("people", "pii")))) == {"people.list.element.ssn", "people.list.element.age"}
    assert set(keys(plan(tagged("kv", "pii")))) == {
        "kv.key_value.key", "kv.key_value.value.ssn", "kv.key_value.value.age",
    }  # fmt: skip


def test_nearest_tag_wins() -> None:
    """A leaf's own tag wins over an ancestor's, a nearer ancestor over a farther, also when it says plaintext."""
    made = plan(tagged("people", "pii"), tagged("people.element.age", "public"))
    assert keys(made) == {"people.list.element.ssn": "pii"}
    made = plan(tagged("kv", "pii"), tagged("kv.value", "finance"), tagged("kv.value.ssn", "pii"))
    assert keys(made) == {"kv.key_value.key": "pii", "kv.key_value.value.ssn": "pii", "kv.key_value.value.age": "fin"}
    assert [column.why for column in made.encrypted] == ["the tag of kv", "its own tag", "the tag of kv.value"]


@pytest.mark.parametrize(
    "path", ["people.element.ssn", "people.list.element.ssn", "PEOPLE.Element.SSN", "people.list.ELEMENT.ssn"]
)
def test_any_name_of_a_column_will_do(path: str) -> None:
    """A tag finds its column by logical or Parquet path, and by case only where the exact name is not there."""
    assert keys(plan(tagged(path, "pii"))) == {"people.list.element.ssn": "pii"}


def test_order_of_the_policy_is_precedence() -> None:
    """Of several tags the first in the policy decides, in whatever order and from whatever source they come."""
    for names in (("pii", "finance"), ("finance", "pii")):
        made = plan(tagged("id", names[0], source="overlay"), tagged("id", names[1], source="avro schema"))
        column = made.encrypted[0]
        assert (column.tag, column.tags, column.sources) == ("pii", ("pii", "finance"), ("avro schema", "overlay"))
        assert column.why == "its own tag, pii before finance"
    turned = policy(tags={"finance": {"key": "fin"}, "pii": {"key": "pii"}})
    assert keys(plan(tagged("id", "pii", "finance"), policy=turned)) == {"id": "fin"}
    assert keys(plan(tagged("id", "public", "finance"))) == {"id": "fin"}


@given(st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_count(order: random.Random) -> None:
    """The same tags and history in any order make an equal plan with an equal text."""
    columns = [
        tagged(path, *tags, source=source)
        for source in SOURCES
        for path, tags in (("id", ("pii", "finance")), ("person", ("finance",)), ("people.element", ("public", "pii")))
    ]
    history = [(("id",), ("a", "b")), (("ID",), ("c",)), (("person", "ssn"), ("d",)), (("person",), ("e",))]
    first = plan(*columns, history=dict(history))
    differ = compare_tags(nested(), columns, policy())
    order.shuffle(columns)
    order.shuffle(history)
    again = plan(*columns, history={path: tuple(order.sample(kept, len(kept))) for path, kept in history})
    assert again == first
    assert compare_tags(nested(), columns, policy()) == differ
    assert again.table_text() == first.table_text()


@given(st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_count_for_problems(order: random.Random) -> None:
    """The same problems in any order are the same message."""
    columns = [tagged("id", "x"), tagged("no.such", "pii"), tagged("day", "pii"), tagged("person", "y", "x")]
    options: dict[str, Any] = {"partition_columns": ["day"], "policy": policy(untagged="deny")}
    first = problems(*columns, **options)
    order.shuffle(columns)
    assert problems(*columns, **options) == first
    assert len(first) == len(set(first))


def test_all_problems_are_told_at_once() -> None:
    """Unknown tags, missing and partition columns, templates and untagged columns come in one error, a line each."""
    found = problems(
        tagged("id", "pi"), tagged("phone", "pii"), tagged("DAY", "pii"), tagged("person.ssn", "monthly"),
        policy=policy(untagged="deny"), partition_columns=["day2", "day"][1:], table="a.b",
    )  # fmt: skip
    assert any(line.startswith("column id carries the tag 'pi' (from the table property)") for line in found)
    assert any(
        line.startswith("column phone is tagged pii by the table property, but the schema has no") for line in found
    )
    assert any(line.startswith("column DAY is a partition column and cannot be encrypted") for line in found)
    assert sum("carries no tag, and the policy says 'untagged: deny'" in line for line in found) == 6


def test_partition_column_stays_out_of_the_way_of_a_real_one() -> None:
    """A data column that differs from a partition column by nothing, or by case, is tagged as itself."""
    assert keys(plan(tagged("id", "pii"), partition_columns=["ID"])) == {"id": "pii"}


@pytest.mark.parametrize(
    ("partition_columns", "allowed"), [(["month"], "month"), ([], "none, the table has no partitions")]
)
def test_template_over_another_column_is_refused(partition_columns: list[str], allowed: str) -> None:
    """A template over a column that is no partition column is refused with those that are."""
    (line,) = problems(tagged("id", "monthly"), partition_columns=partition_columns, table="a.b")
    assert line == (
        "column id: key 'm-{day:%Y-%m}' of tag 'monthly' needs day, which is not a partition column of a.b; "
        f"allowed: {allowed}; partition the table by it, or give the tag another key"
    )


def test_template_is_filled_by_partition() -> None:
    """Keys of a partition are rendered for it; the footer key comes first among the master keys."""
    made = plan(tagged("id", "monthly"), tagged("person.ssn", "pii"), partition_columns=["day"])
    assert made.master_keys({"day": "2026-01-31"}) == ("footer", "m-2026-01", "pii")
    with pytest.raises(PlanError, match=r"column id: key .* needs the value of partition column 'day'"):
        made.key_ids({})
    with pytest.raises(PlanError, match=r"column id: partition day='\.\./footer' cannot stand in key"):
        made.key_ids({"day": "../footer"})
    assert plan().master_keys({}) == ()


def test_ambiguous_case_is_refused() -> None:
    """A tag that could mean two columns which differ by case is refused with both; an exact name is not."""
    fields = [{"name": name, "type": "string"} for name in ("Ab", "aB")]
    schema = schema_from_spark({"type": "struct", "fields": fields})
    with pytest.raises(PlanError, match="column ab could be Ab or aB, which differ from it only by case"):
        build_plan(schema, [tagged("ab", "pii")], policy())
    assert keys(build_plan(schema, [tagged("aB", "pii")], policy())) == {"aB": "pii"}


@pytest.mark.parametrize(("untagged", "action"), [("plaintext", "plaintext"), ("footer_key", "footer_key")])
def test_untagged_column_goes_by_the_policy(untagged: str, action: str) -> None:
    """A column without a tag is what the policy says; one with a plaintext tag is plaintext always."""
    made = {
        column.leaf.dotted: column
        for column in plan(tagged("person", "public"), policy=policy(untagged=untagged)).columns
    }
    assert made["id"].action == action
    assert made["id"].why == f"untagged: {untagged}"
    assert made["person.ssn"].action == "plaintext"
    assert ("id" in [column.leaf.dotted for column in plan(policy=policy(untagged=untagged)).encrypted]) == (
        action == "footer_key"
    )


@pytest.mark.parametrize("by", ["property", "policy"])
def test_required_encryption_refuses_a_table_without_tags(by: str) -> None:
    """A table that requires encryption and has no tag that encrypts is refused by name, by either's word."""
    rules = {"a.b": {"require_encryption": True}} if by == "policy" else {}
    options: dict[str, Any] = {"table": "A.B", "policy": policy(tables=rules), "require_encryption": by == "property"}
    for columns in ((), (tagged("id", "public"),)):
        (line,) = problems(*columns, **options)
        assert line.startswith("A.B requires encryption, but no column carries a tag that encrypts")
    assert plan(tagged("id", "pii"), **options).require_encryption


def test_observed_table_requires_nothing() -> None:
    """`enforce: false` takes the requirement away, and the plan says so."""
    rules = {"a.b": {"require_encryption": True, "enforce": False}}
    made = plan(table="a.b", policy=policy(tables=rules), require_encryption=True)
    assert not made.require_encryption
    assert made.table_text().splitlines()[0] == "a.b: 0 of 8 columns encrypted; observed only (enforce: false)"


def test_history_is_of_the_tag_and_of_the_column() -> None:
    """A column keeps its tag's history, percent-encoded, and what the table keeps for it or a group above it."""
    history = {("person",): ("k%3A2",), ("PERSON", "ssn"): ("plaintext",), ("gone",): ("k3",)}
    made = {column.leaf.dotted: column for column in plan(tagged("person", "pii"), history=history).columns}
    assert made["person.ssn"].history == ("old%3A1", "plaintext", "k%3A2")
    assert made["person.age"].history == ("old%3A1", "plaintext", "k%3A2")
    assert made["id"].history == ()


def test_columns_that_a_file_lacks_may_be_passed_over() -> None:
    """An older file lacks columns of its table; only the caller says that this is so."""
    columns = plan_columns(nested(), [tagged("id", "pii"), tagged("new", "pii")], policy(untagged="deny"))
    assert {column.leaf.dotted: column.key.text for column in columns if column.key} == {"id": "pii"}
    assert "the schema has no such column" in problems(tagged("new", "pii"))[0]


def test_stores_that_differ_are_listed() -> None:
    """Where schema metadata and table properties do not agree is listed; elements have no place in the metadata."""
    columns = (
        tagged("id", "pii"), tagged("id", "finance", source="schema metadata"),
        tagged("person.ssn", "pii"), tagged("person.age", "pii", source="schema metadata"),
        tagged("people.element", "pii"), tagged("kv.value", "pii"),
        tagged("kv", "pii"), tagged("kv", "pii", source="schema metadata"), tagged("people", "pii", source="overlay"),
    )  # fmt: skip
    assert compare_tags(nested(), columns, policy()) == (
        "id: schema metadata has finance, table properties have pii",
        "person.age: schema metadata has pii, table properties have none",
        "person.ssn: schema metadata has none, table properties have pii",
    )
    assert compare_tags(nested(), [tagged("id", "public", source="overlay")], policy()) == ()
    assert plan(*columns).differences == ()


def test_explain_prints_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    """`explain()` prints column, tags, source, key and reason of every leaf, and where the stores differ."""
    rules = {"a.b": {"footer_mode": "plaintext"}}
    columns = (
        tagged("person.ssn", "pii", "finance"), tagged("people", "monthly", source="overlay"), tagged("id", "public"),
    )  # fmt: skip
    ruled = policy(tables=rules, untagged="footer_key")
    made = plan(*columns, policy=ruled, table="a.b", partition_columns=["day"])
    made = replace(made, differences=compare_tags(nested(), columns, ruled))
    made.explain()
    assert (
        capsys.readouterr().out
        == """\
a.b: 7 of 8 columns encrypted; footer plaintext under footer; AES_GCM_V1, 256 bits
column                   tags         from            key            why
-----------------------  -----------  --------------  -------------  -------------------------------
person.ssn               pii,finance  table property  pii            its own tag, pii before finance
person.age               -            -               footer         untagged: footer_key
people.list.element.ssn  monthly      overlay         m-{day:%Y-%m}  the tag of people
people.list.element.age  monthly      overlay         m-{day:%Y-%m}  the tag of people
kv.key_value.key         -            -               footer         untagged: footer_key
kv.key_value.value.ssn   -            -               footer         untagged: footer_key
kv.key_value.value.age   -            -               footer         untagged: footer_key
id                       public       table property  -              its own tag
differs: id: schema metadata has none, table properties have public
differs: person.ssn: schema metadata has none, table properties have finance,pii
"""
    )


def test_json_form_holds_everything() -> None:
    """`to_dict()` has the table, the policy's digest, and each column with its key, reason and history."""
    made = plan(tagged("id", "pii"), table="a.b").to_dict()
    assert made["columns"][0] == {
        "column": "id", "action": "encrypt", "key_id": "pii", "tag": "pii", "tags": ["pii"],
        "sources": ["table property"], "why": "its own tag", "history": ["old%3A1", "plaintext"],
    }  # fmt: skip
    assert (made["policy_digest"], made["enforce"]) == (policy().digest(), True)


HARD = [
    "a.b",
    "a,b",
    "a;b",
    "a:b",
    "a%b",
    "a b",
    "AB",
    "ß",
    "İ",
    "😀",
    'a"b',
    "a'b",
    "`a`",
    "$x",
    "{y}",
    "%",
    "a=b",
    "a\\b",
]


@pytest.mark.parametrize("name", HARD)
def test_hard_names_work_in_a_plan(name: str) -> None:
    """A column of any name is planned under its own path, by metadata and by a property's path alike."""
    kind = {"type": "struct", "fields": [{"name": name, "type": "string", "metadata": {"tags": "pii"}}]}
    schema = schema_from_spark({"type": "struct", "fields": [{"name": name, "type": kind}]})
    (column,) = build_plan(schema, tags_of_schema(schema), policy()).encrypted
    assert column.path == (name, name)
    (column,) = build_plan(schema, [tagged(column.leaf.dotted, "finance")], policy()).encrypted
    assert column.path == (name, name)
