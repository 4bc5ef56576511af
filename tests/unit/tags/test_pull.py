"""Tags of other products as rules, from answers and files recorded by the products' documented formats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.policy.load import rules_from_text
from sparkcrypt.tags.exports.protobuf import tags_of_protobuf
from sparkcrypt.tags.pull import Names, Pulled, pull_tags, read_export

AVRO = {
    "type": "record",
    "name": "Customer",
    "namespace": "com.x",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": "string", "confluent:tags": ["PII"]},
        {"name": "ssn", "type": ["null", "string"]},
        {"name": "home", "type": "com.x.Address"},
    ],
}
ADDRESS = {"type": "record", "name": "com.x.Address", "fields": [{"name": "zip", "type": "string"}]}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "email": {"type": "string", "confluent:tags": ["PII"]},
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
        "phone": {"oneOf": [{"type": "null"}, {"type": "string", "confluent:tags": ["CONTACT"]}]},
    },
    "$defs": {"person": {"type": "object", "properties": {"ssn": {"type": "string"}}}},
}
PROTOBUF = """
syntax = "proto3";
package com.x;
import "confluent/meta.proto";
/* a message; not a field */
message Customer {
  option deprecated = true;
  enum Kind { A = 0; }
  string email = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).tags = "CONTACT"];
  repeated Person people = 2;
  map<string, Person> by_name = 3;
  oneof one {
    string phone = 4 [(confluent.field_meta) = { tags: ["PII", "CONTACT"], params: [{key: "tags", value: "x"}] }];
  }
  Kind kind = 5 [deprecated = true];
  message Person { string ssn = 1; int32 age = 2; }
}
"""


def subject(name: str, schema: Any, kind: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a schema as the registry answers it."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"subject": name, "version": 1, "id": 1, "schema": text, **({"schemaType": kind} if kind else {}), **more}


def pull(source: str, export: Any, names: Names | None = None) -> Pulled:
    """Return what is pulled of one export."""
    known = names or Names()
    text = export if isinstance(export, str) else json.dumps(export)
    return pull_tags(read_export(source, text, "export", known), known)


def confluent(*subjects: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return the tables of subjects."""
    return pull("confluent", list(subjects), Names(tables={"*-value": "lake.*"})).tables


def test_avro_has_inline_tags_and_those_of_paths_through_references() -> None:
    """A path matches the full name of the record and the field, also in a type of another subject."""
    reference = {"name": "com.x.Address", "subject": "address", "version": 1}
    tags = {"**.ssn": ["PII"], "com.x.Address.z?p": ["CONTACT"], "com.*.id": ["NOT"], "*.email": ["NOT"]}
    customer = subject("customer-value", AVRO, references=[reference], metadata={"tags": tags})
    found = confluent(customer, subject("address", ADDRESS), subject("broken", "{"))
    assert found == {"lake.customer": {"email": ["PII"], "ssn": ["PII"], "home.zip": ["CONTACT"]}}
    with pytest.raises(PlanError, match=r"customer-value: refers to subject address, which is not there"):
        confluent(customer)


def test_the_newest_version_of_a_subject_counts() -> None:
    """An answer may have all versions."""
    fields = [{"name": "a", "type": "string", "confluent:tags": ["PII"]}]
    new = subject("t-value", {"type": "record", "name": "R", "fields": fields}, version=2)
    assert confluent(new, subject("t-value", {"type": "record", "name": "R", "fields": []})) == {
        "lake.t": {"a": ["PII"]}
    }


def test_json_schema_has_tags_in_elements_references_and_branches() -> None:
    """The root is ``$``; an element is its array's element."""
    metadata = {"tags": {"$.people*.ssn": ["PII"]}}
    found = confluent(subject("c-value", JSON_SCHEMA, "JSON", metadata=metadata))
    assert found == {"lake.c": {"email": ["PII"], "people.element.ssn": ["PII"], "phone": ["CONTACT"]}}


def test_protobuf_has_tags_of_both_forms_and_nested_messages() -> None:
    """The first message is the row; repeated fields are elements, maps have values, members of oneof are fields."""
    metadata = {"tags": {"com.x.Customer.Person.ssn": ["PII"]}}
    found = confluent(subject("c-value", PROTOBUF, "PROTOBUF", metadata=metadata))
    assert found == {
        "lake.c": {
            "email": ["PII", "CONTACT"],
            "people.element.ssn": ["PII"],
            "by_name.value.ssn": ["PII"],
            "phone": ["PII", "CONTACT"],
        }
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message A { A a = 1; }", "contains itself"),
        ("message A { string a = 1;", "ends too early"),
        ("syntax = 'proto3';", "defines no message"),
        ("message A { string 1 a; }", "is not a field"),
    ],
)
def test_protobuf_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    """Columns whose tags are not known must not look untagged."""
    with pytest.raises(PlanError, match=said):
        list(tags_of_protobuf(text, "s"))


def test_json_schema_that_cannot_be_read_is_refused() -> None:
    """A reference that leads nowhere, or round and round, is an error."""
    nowhere = {"properties": {"a": {"$ref": "other.json"}}}
    within = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}}}}
    for schema, said in ((nowhere, "not there"), (within, "contains itself"), ({"$ref": "#"}, "refers to itself")):
        with pytest.raises(PlanError, match=said):
            confluent(subject("c-value", schema, "JSON"))


def test_datahub_has_tags_and_terms_of_the_schema_and_of_its_edits() -> None:
    """GraphQL nests a tag in an object, aspects name its URN; fields of version 2 have their types in their paths.

    The fields of a dataset within another are its own.
    """
    urn = "urn:li:dataset:(urn:li:dataPlatform:{},{},PROD)"
    edits = [{"fieldPath": "email", "globalTags": {"tags": [{"tag": "urn:li:tag:pii"}]}}]
    path = "[version=2.0].[type=struct].[type=array].[type=struct].people.[type=string].ssn"
    fields: list[dict[str, Any]] = [
        {"fieldPath": "email", "glossaryTerms": {"terms": [{"term": {"urn": "urn:li:glossaryTerm:PII.Email"}}]}},
        {"fieldPath": path, "tags": {"tags": [{"tag": {"urn": "urn:li:tag:pii", "name": "PII"}}]}},
        {"fieldPath": "id", "globalTags": None},
    ]
    hive = {"urn": urn.format("hive", "prod.sales.Customers"), "schemaMetadata": {"fields": fields}}
    snow = {
        "urn": urn.format("snowflake", "sales.customers"),
        "schemaMetadata": {"fields": [fields[0] | {"fieldPath": "other"}]},
    }
    aspect = {"value": {"editableSchemaFieldInfo": edits}}
    pulled = pull("datahub", {"data": {"entities": [hive | {"editableSchemaMetadata": aspect, "upstream": snow}]}})
    assert pulled.tables == {"sales.customers": {"email": ["PII.Email", "pii"], "people.element.ssn": ["pii"]}}
    assert pulled.unknown_tables == {"snowflake:sales.customers": 1}


RANGER: dict[str, Any] = {
    "op": "add_or_update",
    "serviceName": "dev_hive",
    "tags": {"1": {"type": "PII"}, "2": {"type": "EXPIRES_ON"}},
    "serviceResources": [
        {
            "id": 7,
            "resourceElements": {
                "database": {"values": ["hr"]},
                "table": {"values": ["staff"]},
                "column": {"values": ["ssn", "a.b"]},
            },
        },
        {"id": 8, "resourceElements": {"database": {"values": ["hr"]}, "table": {"values": ["staff"]}}},
    ],
    "resourceToTagIds": {"7": [1], "8": [2]},
}


def test_ranger_has_tags_of_columns() -> None:
    """Each column of a resource has its tags; tags of whole tables are no columns'."""
    assert pull("ranger", RANGER).tables == {"hr.staff": {"ssn": ["PII"], "a%2Eb": ["PII"]}}
    pattern = json.loads(json.dumps(RANGER).replace('"ssn"', '"ss*"'))
    with pytest.raises(PlanError, match="is a pattern"):
        pull("ranger", pattern)


ROW = {"catalog_name": "main", "schema_name": "hr", "table_name": "staff", "column_name": "ssn", "tag_name": "pii"}


def unity() -> Iterator[str]:
    """Yield the same rows in each form."""
    rows = [ROW | {"tag_value": ""}, ROW | {"column_name": "mail", "tag_value": "email"}]
    yield json.dumps(rows)
    yield "\n".join(map(json.dumps, rows))
    head = ",".join(rows[0]).upper()
    yield "\r\n".join([head, *(",".join(row.values()) for row in rows)])


@pytest.mark.parametrize("text", [*unity()], ids=["list", "lines", "csv"])
def test_unity_has_rows_of_column_tags(text: str) -> None:
    """A tag with a value is looked up with it, then by its name; ``false`` is no tag."""
    names = Names(tags={"pii": ("pii",), "pii=email": ("contact",)})
    assert pull("unity", text, names).tables == {"hr.staff": {"ssn": ["pii"], "mail": ["contact"]}}
    assert pull("unity", [ROW | {"tag_value": "x"}], Names(known=["pii"])).tables == {"hr.staff": {"ssn": ["pii"]}}
    assert pull("unity", [ROW | {"tag_value": "false"}]).tables == {}
    with pytest.raises(PlanError, match="has no table_name"):
        pull("unity", [{**ROW, "table_name": None}])


def test_dbt_has_tags_and_meta_of_columns() -> None:
    """Since 1.10 they may be below ``config``; sources have an identifier, ephemeral models have no table."""
    columns = {
        "ssn": {"name": "ssn", "tags": ["pii"], "meta": {"owner": "ann", "contact": True, "open": False}},
        "mail": {"name": "mail", "config": {"tags": ["pii"], "meta": {"class": ["PII.Email"]}}},
    }
    model = {"resource_type": "model", "schema": "hr", "name": "stg_staff", "alias": "staff", "columns": columns}
    gone = model | {"alias": "gone", "config": {"materialized": "ephemeral"}}
    source = {"resource_type": "source", "schema": "raw", "name": "s", "identifier": "staff_v1", "columns": columns}
    names = Names(tags={"class=PII.Email": ("contact",)}, known=("pii", "contact", "open"))
    pulled = pull(
        "dbt", {"nodes": {"a": model, "b": gone, "c": {"resource_type": "test"}}, "sources": {"d": source}}, names
    )
    tags = {"ssn": ["pii", "contact"], "mail": ["pii", "contact"]}
    assert pulled.tables == {"hr.staff": tags, "raw.staff_v1": tags}
    assert pulled.unknown_tags == {"owner=ann": 2}


@pytest.mark.parametrize("source", ["datahub", "ranger", "unity", "dbt", "openlineage", "confluent"])
@pytest.mark.parametrize("text", ["[", "{}", "[{}]", "null", '[{"nodes": 1}]'])
def test_what_is_no_export_is_refused(source: str, text: str) -> None:
    """Another file never looks like one without tags."""
    with pytest.raises(PlanError):
        pull(source, text, Names(tables={"a": "b.c"}))


def test_names_are_checked_and_what_has_none_is_named() -> None:
    """A tag that the policy does not define, or a table without database, is refused before anything is read."""
    for wrong in ({"tags": {"A": ("x",)}, "known": ("pii",)}, {"tables": {"a": "b"}}, {"tables": {"a*": "b.c"}}):
        with pytest.raises(ConfigError):
            Names(**wrong)
    names = Names(tables={"*-value": "lake.*", "x-value": "other.x"}, only=("lake.*",), known=("pii",))
    assert [names.table(name) for name in ("a-value", "x-value", "c.Db.T", "alone")] == [
        "lake.a",
        "other.x",
        "db.t",
        None,
    ]
    found = [("a-value", "c", "pii"), ("x-value", "c", "pii"), ("alone", "c", "pii"), ("a-value", "c", "odd name")]
    pulled = pull_tags(found, names)
    assert pulled == Pulled({"lake.a": {"c": ["pii"]}}, {"odd name": 1}, {"alone": 1})
    with pytest.raises(ConfigError, match="needs --table"):
        pull("confluent", [])


def test_the_rules_are_what_apply_takes() -> None:
    """Names that YAML would read as something else come back as they are."""
    pulled = Pulled({"db.null": {"yes": ["pii", "on"], "a%2Eb: x": ["pii"], 'q"': ["ü"]}, "db.a": {"1": ["x"]}}, {}, {})
    first, second = rules_from_text(pulled.to_yaml(), where="f", base="/")
    assert (first.name, dict(first.tags)) == ("db.a", {"1": ("x",)})
    assert dict(second.tags) == {"yes": ("pii", "on"), "a%2Eb: x": ("pii",), 'q"': ("ü",)}
    assert rules_from_text(Pulled({}, {}, {}).to_yaml(), where="f", base="/") == ()


def test_an_export_of_another_form_is_named() -> None:
    """Whatever part of it is not as documented, the message says which file it is."""
    odd: dict[str, Any] = {**RANGER, "serviceResources": ["x"]}
    for source, export in (("ranger", odd), ("dbt", {"nodes": {"a": 1}})):
        with pytest.raises(PlanError, match=f"export: is not of the form that {source} documents"):
            pull(source, export)


def lineage(name: str, tags: list[dict[str, str]], made: dict[str, list[dict[str, Any]]], table: str = "") -> Any:
    """Return a dataset of an event."""
    facets: dict[str, Any] = {"tags": {"tags": tags}, "columnLineage": {"fields": {}}}
    for field, origins in made.items():
        facets["columnLineage"]["fields"][field] = {"inputFields": [{"namespace": "hdfs://nn", **of} for of in origins]}
    if table:
        facets["symlinks"] = {"identifiers": [{"namespace": "hive://ms", "name": table, "type": "TABLE"}]}
    return {"namespace": "hdfs://nn", "name": name, "facets": facets}


def test_openlineage_carries_tags_along_columns() -> None:
    """Over two steps, in any order of events and round a circle; conditions and other values carry none."""
    indirect = [{"type": "INDIRECT", "subtype": "FILTER"}]
    both = [*indirect, {"type": "DIRECT", "subtype": "TRANSFORMATION"}]
    first = lineage(
        "/w/a.b", [{"key": "pii", "value": "true", "field": "ssn"}, {"key": "old", "value": "x"}], {}, "db.a"
    )
    second = lineage("/w/b", [], {"shout": [{"name": "/w/a.b", "field": "ssn", "transformations": both}]}, "db.b")
    made: dict[str, list[dict[str, Any]]] = {
        "last": [{"name": "/w/b", "field": "shout"}],
        "name": [{"name": "/w/a.b", "field": "ssn", "transformations": indirect}],
    }
    third = lineage("/w/c.d", [{"key": "class", "value": "Email", "field": "mail"}], made)
    back = lineage("/w/b", [], {"shout": [{"name": "/w/c.d", "field": "last"}]})
    events = [{"eventTime": "t", "outputs": [third]}, {"eventTime": "t", "inputs": [first], "outputs": [second]}]
    events += [{"eventTime": "t", "outputs": [back]}]
    pulled = pull("openlineage", events, Names(tables={"/w/c.d": "db.c"}))
    assert pulled.tables == {"db.a": {"ssn": ["pii"]}, "db.b": {"shout": ["pii"]}, "db.c": {"last": ["pii"]}}
    assert pulled.unknown_tags == {"class=Email": 1}
    lines = "\n".join(map(json.dumps, events))
    assert pull("openlineage", lines).unknown_tables == {"/w/c.d": 2}
