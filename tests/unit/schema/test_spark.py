"""Spark's schema JSON: every type, its leaves, its tags, and every malformed form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import MAX_DEPTH, schema_from_spark
from sparkcrypt.tags.model import tags_of_schema
from tests.unit.schema.strategies import JSON_VALUES, spark_schemas


def struct(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """Return a struct of fields: name, type and metadata."""
    return {
        "type": "struct",
        "fields": [
            {"name": field[0], "type": field[1], "nullable": True, "metadata": field[2] if len(field) > 2 else {}}
            for field in fields
        ],
    }


def leaves(document: Any) -> list[str]:
    """Return the leaf paths of a schema."""
    return [leaf.dotted for leaf in schema_from_spark(document).leaves()]


ARRAY = {"type": "array", "elementType": "string", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": ARRAY, "valueContainsNull": True}
UDT = {"type": "udt", "class": "x", "pyClass": "y", "sqlType": struct(("v", "double"))}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *[
            (name, ["c"])
            for name in (
                "string", "char(3)", "varchar(9)", "binary", "boolean", "byte", "short", "integer", "long", "float",
                "double", "decimal(38,18)", "date", "timestamp", "timestamp_ntz", "void", "interval year to month",
                "interval day to second", "interval", "time(6)", "string collate UNICODE_CI", "geometry(4326)",
            )
        ],
        ("variant", ["c.value", "c.metadata"]),
        (ARRAY, ["c.list.element"]),
        (MAP, ["c.key_value.key", "c.key_value.value.list.element"]),
        (struct(("a", "long"), ("b", ARRAY)), ["c.a", "c.b.list.element"]),
        ({"type": "array", "elementType": MAP}, ["c.list.element.key_value.key", "c.list.element.key_value.value.list.element"]),  # noqa: E501  # one message, one line
        (UDT, ["c.v"]),
        ({"type": "udt", "sqlType": UDT}, ["c.v"]),
        ({"type": "array", "elementType": UDT}, ["c.list.element.v"]),
        (struct(), []),
    ],
)  # fmt: skip
def test_type_has_its_parquet_leaves(kind: Any, expected: list[str]) -> None:
    """Each Spark type has the leaf columns that Spark writes."""
    assert leaves(json.dumps(struct(("c", kind)))) == expected
    assert leaves(struct(("c", kind))) == expected


def test_tags_are_read_at_every_depth() -> None:
    """Tags of fields in structs, arrays and maps keep their logical path; a bare string is a list of names."""
    inner = struct(("ssn", "string", {"tags": "pii, finance"}), ("n", "long", {"tags": []}))
    document = struct(
        ("a", {"type": "array", "elementType": inner}, {"tags": ["contact"]}),
        ("m", {"type": "map", "keyType": "string", "valueType": inner}, {"comment": "x"}),
    )
    found = {column.path: column.tags for column in tags_of_schema(schema_from_spark(document))}
    assert found == {
        ("a",): ("contact",),
        ("a", "element", "ssn"): ("pii", "finance"),
        ("m", "value", "ssn"): ("pii", "finance"),
    }


def test_partition_columns_are_left_out() -> None:
    """Partition columns are left out up to case, unless two columns differ by nothing else."""
    assert leaves_without(struct(("a", "long"), ("P", "date")), "p") == ["a"]
    assert leaves_without(struct(("P", "long"), ("p", "date")), "p") == ["P"]
    assert leaves_without(struct(("P", "long"), ("p", "date")), "P") == ["p"]


def leaves_without(document: Any, *names: str) -> list[str]:
    """Return the leaf paths of a schema less some columns."""
    return [leaf.dotted for leaf in schema_from_spark(document, leave_out=names).leaves()]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "the Spark schema is not JSON"),
        ("{", "the Spark schema is not JSON"),
        ("[" * 100_000, "the Spark schema is not JSON"),
        ("null", "is not a struct; pass what StructType.json"),
        ("[]", "is not a struct"),
        ('"struct"', "is not a struct"),
        ('{"type": "array"}', "is not a struct"),
        ('{"type": "struct"}', "the schema: a struct's 'fields' is None; allowed: a list"),
        ('{"type": "struct", "fields": {}}', "'fields' is {}; allowed: a list"),
        ('{"type": "struct", "fields": [1]}', "a field is 1; allowed: an object with a name"),
        ('{"type": "struct", "fields": [{"type": "long"}]}', "a field is .* allowed: an object with a name"),
        ('{"type": "struct", "fields": [{"name": 1, "type": "long"}]}', "allowed: an object with a name"),
        ('{"type": "struct", "fields": [{"name": "c"}]}', "column c: its type is None"),
        (struct(("c", 7)), "column c: its type is 7"),
        (struct(("c", "")), "column c: its type is ''"),
        (struct(("c", ["long"])), r"column c: its type is \['long'\]"),
        (struct(("c", {"type": "list"})), "column c: its type is {'type': 'list'}"),
        (struct(("c", {"type": ["struct"]})), "column c: its type is"),
        (struct(("c", {"type": "array"})), r"column c\.element: its type is None"),
        (struct(("c", {"type": "map", "keyType": "long"})), r"column c\.value: its type is None"),
        (struct(("c", {"type": "map", "valueType": "long"})), r"column c\.key: its type is None"),
        (struct(("c", {"type": "udt"})), "column c: its type is None"),
        (struct(("c", {"type": "struct"})), "column c: a struct's 'fields' is None"),
        (struct(("c", struct(("d", 7)))), r"column c\.d: its type is 7"),
        (struct(("c", "long", 7)), "column c: its metadata is 7; allowed: an object"),
        (struct(("c", "long", ["tags"])), "column c: its metadata is"),
        (struct(("c", "long", {"tags": 7})), "column c: its tags are 7; allowed: a list of names"),
        (struct(("c", "long", {"tags": [7]})), r"column c: its tags are \[7\]"),
        (struct(("c", "long", {"tags": [""]})), r"column c: its tags are \[''\]"),
        (struct(("c", "long", {"tags": ""})), "column c: its tags are ''"),
        (struct(("c", "long", {"tags": "pii,"})), "column c: its tags are 'pii,'"),
        (struct(("c", "long", {"tags": {"pii": True}})), "column c: its tags are"),
        (struct(("s", struct(("x.y", "long", {"tags": 0})))), r"column s\.x%2Ey: its tags are 0"),
    ],
)
def test_malformed_schema_is_refused_by_name(document: Any, message: str) -> None:
    """Each malformed form is a PlanError that names the column and what is allowed."""
    with pytest.raises(PlanError, match=message):
        schema_from_spark(document)


@pytest.mark.parametrize("kind", ["array", "struct", "map", "udt"])
def test_deep_nesting_is_refused_without_overflow(kind: str) -> None:
    """Types nested beyond the limit are refused by the column's name, and the stack does not overflow."""
    inner: Any = "long"
    for _ in range(MAX_DEPTH + 5):
        inner = {
            "array": {"type": "array", "elementType": inner},
            "struct": struct(("s", inner)),
            "map": {"type": "map", "keyType": "long", "valueType": inner},
            "udt": {"type": "udt", "sqlType": inner},
        }[kind]
    if kind == "udt":  # a wrapper adds no level
        assert leaves(struct(("c", inner))) == ["c"]
        return
    with pytest.raises(PlanError, match=f"nested deeper than {MAX_DEPTH} levels"):
        schema_from_spark(struct(("c", inner)))


@pytest.mark.slow
@settings(max_examples=300)
@given(JSON_VALUES)
def test_any_json_is_a_schema_or_refused(value: Any) -> None:
    """Whatever JSON arrives, as a schema or as a type inside one, the answer is a schema or a PlanError."""
    for document in (value, struct(("c", value)), struct(("c", "long", value)), {"type": "struct", "fields": value}):
        try:
            schema_from_spark(json.dumps(document)).leaves()
        except PlanError as error:
            assert str(error)


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    """No text that is not a struct's JSON gives anything but a PlanError."""
    with pytest.raises(PlanError):
        schema_from_spark(text)


@given(spark_schemas())
def test_random_schema_is_what_pyspark_reads(document: dict[str, Any]) -> None:
    """The random schemas of these tests are schemas for pyspark too, with the same top-level names."""
    assert StructType.fromJson(document).names == [node.name for node in schema_from_spark(document).fields]
