"""Parquet message types: the leaf paths are the file's own, the logical paths the same for every writer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import MAX_DEPTH, schema_from_parquet, schema_from_spark
from tests.unit.schema.strategies import spark_schemas


def leaf(name: str, repetition: str = "optional") -> dict[str, Any]:
    """Return a leaf field."""
    return {"name": name, "kind": "leaf", "annotation": None, "repetition": repetition, "children": []}


def group(
    name: str, *children: dict[str, Any], annotation: str | None = None, repetition: str = "optional"
) -> dict[str, Any]:
    """Return a group field."""
    return {
        "name": name,
        "kind": "group",
        "annotation": annotation,
        "repetition": repetition,
        "children": list(children),
    }


def repeated(name: str, *children: dict[str, Any], annotation: str | None = None) -> dict[str, Any]:
    """Return a repeated group."""
    return group(name, *children, annotation=annotation, repetition="repeated")


FORMS = {
    "three levels": (
        group("a", repeated("list", leaf("element")), annotation="LIST"),
        [("a.element", "a.list.element")],
    ),
    "three levels of Arrow": (
        group("a", repeated("list", leaf("item")), annotation="LIST"),
        [("a.element", "a.list.item")],
    ),
    "two levels": (
        group("a", leaf("array", "repeated"), annotation="LIST"),
        [("a.element", "a.array")],
    ),
    "two levels of structs, several fields": (
        group("a", repeated("element", leaf("x"), leaf("y")), annotation="LIST"),
        [("a.element.x", "a.element.x"), ("a.element.y", "a.element.y")],
    ),
    "two levels of structs named array": (
        group("a", repeated("array", leaf("x")), annotation="LIST"),
        [("a.element.x", "a.array.x")],
    ),
    "two levels of structs named tuple": (
        group("a", repeated("a_tuple", leaf("x")), annotation="LIST"),
        [("a.element.x", "a.a_tuple.x")],
    ),
    "two levels of structs with a repeated field": (
        group("a", repeated("list", leaf("x", "repeated")), annotation="LIST"),
        [("a.element.x", "a.list.x")],
    ),
    "two levels of lists": (
        group("a", repeated("array", leaf("array", "repeated"), annotation="LIST"), annotation="LIST"),
        [("a.element.element", "a.array.array")],
    ),
    "Hive": (
        group("a", repeated("bag", leaf("array_element")), annotation="LIST"),
        [("a.element", "a.bag.array_element")],
    ),
    "Spark legacy with nulls": (
        group("a", repeated("bag", group("array", leaf("x"))), annotation="LIST"),
        [("a.element.x", "a.bag.array.x")],
    ),
    "map": (
        group("m", repeated("key_value", leaf("key", "required"), leaf("value")), annotation="MAP"),
        [("m.key", "m.key_value.key"), ("m.value", "m.key_value.value")],
    ),
    "old map": (
        group("m", repeated("map", leaf("k", "required"), leaf("v"), annotation="MAP_KEY_VALUE"), annotation="MAP"),
        [("m.key", "m.map.k"), ("m.value", "m.map.v")],
    ),
    "map annotated by its inside": (
        group("m", repeated("map", leaf("key", "required"), leaf("value")), annotation="MAP_KEY_VALUE"),
        [("m.key", "m.map.key"), ("m.value", "m.map.value")],
    ),
    "map of lists": (
        group(
            "m",
            repeated("key_value", leaf("key"), group("value", repeated("list", leaf("element")), annotation="LIST")),
            annotation="MAP",
        ),
        [("m.key", "m.key_value.key"), ("m.value.element", "m.key_value.value.list.element")],
    ),
    "struct that looks like a list": (
        group("s", group("list", leaf("element"))),
        [("s.list.element", "s.list.element")],
    ),
    "struct that looks like a map": (
        group("s", group("key_value", leaf("key"), leaf("value"))),
        [("s.key_value.key", "s.key_value.key"), ("s.key_value.value", "s.key_value.value")],
    ),
    "annotation on a group that is no list": (
        group("s", group("list", leaf("element")), annotation="LIST"),
        [("s.list.element", "s.list.element")],
    ),
    "annotation on a group that is no map": (
        group("s", repeated("key_value", leaf("key")), annotation="MAP"),
        [("s.key_value.key", "s.key_value.key")],
    ),
    "repeated without annotation": (repeated("r", leaf("x")), [("r.x", "r.x")]),
    "repeated leaf": (leaf("r", "repeated"), [("r", "r")]),
    "hard names": (group("a.b", leaf("c,d")), [("a%2Eb.c,d", "a%2Eb.c,d")]),
}


@pytest.mark.parametrize("name", FORMS)
def test_form_of_a_writer(name: str) -> None:
    """Every writer's form has the file's own leaf paths and the common logical paths."""
    field, expected = FORMS[name]
    found = [(dotted(one.logical), one.dotted) for one in schema_from_parquet([field]).leaves()]
    assert found == expected


def dotted(path: tuple[str, ...]) -> str:
    """Return a path as text."""
    return ".".join(name.replace(".", "%2E") for name in path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (None, "its fields are None; allowed: a list"),
        ({"name": "a"}, "allowed: a list"),
        ([7], "the schema: a field is 7; allowed: a name, a kind and a repetition"),
        ([{"name": "a"}], "allowed: a name, a kind and a repetition"),
        ([{**leaf("a"), "name": 7}], "allowed: a name"),
        ([{**leaf("a"), "kind": "column"}], "allowed: a name"),
        ([{**leaf("a"), "repetition": None}], "allowed: a name"),
        ([group("s", {**leaf("a"), "kind": None})], "column s: a field is"),
        ([{**group("s"), "children": 7}], "column s: its fields are 7"),
    ],
)
def test_malformed_message_type_is_refused(fields: Any, message: str) -> None:
    """What is no message type is a PlanError that names the place."""
    with pytest.raises(PlanError, match=message):
        schema_from_parquet(fields)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 5000])
def test_deep_message_type_is_refused_without_overflow(levels: int) -> None:
    """Groups nested beyond the limit are refused, and the stack does not overflow."""
    field = leaf("x")
    for _ in range(levels):
        field = group("s", field)
    with pytest.raises(PlanError, match="nested deeper than"):
        schema_from_parquet([field]).leaves()


def test_a_list_has_two_names_for_one_level() -> None:
    """As many nested lists are taken from a file as from a table's schema."""
    field, kind = leaf("element"), "long"
    for _ in range(MAX_DEPTH - 1):
        field = group("element", repeated("list", field), annotation="LIST")
        kind = {"type": "array", "elementType": kind}  # type: ignore[assignment]  # a type is a text or an object
    field["name"] = "a"
    spark = schema_from_spark({"type": "struct", "fields": [{"name": "a", "type": kind}]})
    assert schema_from_parquet([field]).leaves() == spark.leaves()


ARROW = {
    "string": pa.string(), "integer": pa.int32(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "decimal(10,2)": pa.decimal128(10, 2),  # noqa: E501  # one message, one line
}  # fmt: skip


def arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of a Spark type."""
    if isinstance(kind, str):
        return ARROW[kind]
    if kind["type"] == "array":
        return pa.list_(arrow_type(kind["elementType"]))
    if kind["type"] == "map":
        return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))
    return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in kind["fields"]])


def written_paths(document: dict[str, Any]) -> list[str]:
    """Return the leaf paths of a real file of a schema."""
    schema = pa.schema(list(arrow_type(document)))
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, use_compliant_nested_type=True)
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(place).path for place in range(len(parquet))]


@settings(max_examples=150, deadline=None)
@given(spark_schemas())
def test_leaves_are_what_is_really_written(document: dict[str, Any]) -> None:
    """The leaf paths told from a Spark schema are those of a real file of the same types."""
    assert [".".join(one.parquet) for one in schema_from_spark(document).leaves()] == written_paths(document)


def message_type(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what Spark's standard format makes of a schema."""
    return [_field(field["name"], field["type"]) for field in document["fields"]]


def _field(name: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return leaf(name)
    if kind["type"] == "array":
        return group(name, repeated("list", _field("element", kind["elementType"])), annotation="LIST")
    if kind["type"] == "map":
        pair = (_field("key", kind["keyType"]), _field("value", kind["valueType"]))
        return group(name, repeated("key_value", *pair), annotation="MAP")
    return group(name, *message_type(kind))


@given(spark_schemas())
def test_both_sources_have_the_same_leaves(document: dict[str, Any]) -> None:
    """A file's message type and the Spark schema that it was written from have the same leaves, logical and Parquet."""
    assert schema_from_parquet(message_type(document)).leaves() == schema_from_spark(document).leaves()


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.sampled_from(["a", "list"]) | inner,
                    "kind": st.sampled_from(["leaf", "group"]) | inner,
                    "annotation": st.sampled_from(["LIST", "MAP", None]) | inner,
                    "repetition": st.sampled_from(["repeated", "optional"]) | inner,
                    "children": inner,
                },
            ),
            max_size=3,
        ),
        max_leaves=8,
    )
)
def test_any_message_type_is_a_schema_or_refused(fields: Any) -> None:
    """Whatever stands for a message type, the answer is a schema or a PlanError."""
    try:
        schema_from_parquet(fields).leaves()
    except PlanError as error:
        assert str(error)
