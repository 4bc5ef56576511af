"""Parquet message types: the leaf paths are the file's own, the logical paths the same for every writer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import MAX_DEPTH, find_shredded, schema_from_parquet, schema_from_spark
from tests.unit.schema.message_types import FORMS, group, leaf, message_type, repeated
from tests.unit.schema.strategies import spark_schemas


@pytest.mark.parametrize("name", FORMS)
def test_form_of_a_writer(name: str) -> None:
    """Every writer's form has the file's own leaf paths and the common logical paths."""
    field, expected = FORMS[name]
    found = [(dotted(column.logical), column.dotted) for column in schema_from_parquet([field]).leaves()]
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
    field = leaf("element")
    kind: str | dict[str, Any] = "long"
    for _ in range(MAX_DEPTH - 1):
        field = group("element", repeated("list", field), annotation="LIST")
        kind = {"type": "array", "elementType": kind}
    field["name"] = "a"
    spark = schema_from_spark({"type": "struct", "fields": [{"name": "a", "type": kind}]})
    assert schema_from_parquet([field]).leaves() == spark.leaves()


def array(element: Any) -> dict[str, Any]:
    """Return Spark's type of an array."""
    return {"type": "array", "elementType": element, "containsNull": True}


def struct(**fields: Any) -> dict[str, Any]:
    """Return Spark's type of a struct."""
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


MAP = {"type": "map", "keyType": "string", "valueType": "string"}
SHREDDED = group(
    "V",
    leaf("metadata", "required"),
    leaf("value"),
    group("typed_value", group("list", leaf("value"), group("typed_value", leaf("metadata")))),
)
OF_SHREDDED = [
    ("metadata", "metadata"),
    ("value", "value"),
    ("value", "typed_value.list.value"),
    ("value", "typed_value.list.typed_value.metadata"),
]
READ: dict[str, tuple[Any, dict[str, Any], list[tuple[str, str]]]] = {
    "another case": (struct(X="long"), group("A", leaf("x")), [("a.X", "A.x")]),
    "a repeated leaf": (array("string"), leaf("a", "repeated"), [("a.element", "a")]),
    "a repeated group": (array(struct(x="long")), repeated("a", leaf("x")), [("a.element.x", "a.x")]),
    "a struct that repeats by its type alone": (
        array(struct(x="long")),
        group("a", repeated("list", leaf("x")), annotation="LIST"),
        [("a.element.x", "a.list.x")],
    ),
    "a struct in three levels of its own name": (
        array(struct(element="long")),
        group("a", repeated("list", group("element", leaf("element"))), annotation="LIST"),
        [("a.element.element", "a.list.element.element")],
    ),
    "three levels by a name of two": (
        array("string"),
        group("a", repeated("array", leaf("x")), annotation="LIST"),
        [("a.element", "a.array.x")],
    ),
    "a struct of two levels that got a field later": (
        array(struct(x="long", y="long")),
        group("a", repeated("array", leaf("x")), annotation="LIST"),
        [("a.element.x", "a.array.x")],
    ),
    "a map without annotation": (
        MAP,
        group("a", repeated("pairs", leaf("k"), leaf("v"))),
        [("a.key", "a.pairs.k"), ("a.value", "a.pairs.v")],
    ),
    "a shredded VARIANT": (
        "variant",
        {**SHREDDED, "name": "a"},
        [(f"a.{name}", f"a.{at}") for name, at in OF_SHREDDED],
    ),
    "a shredded VARIANT in a list": (
        array(struct(v="variant")),
        group("a", repeated("list", group("element", SHREDDED)), annotation="LIST"),
        [(f"a.element.v.{name}", f"a.list.element.V.{at}") for name, at in OF_SHREDDED],
    ),
    "what the table lacks": (struct(x="long"), group("a", leaf("r", "repeated")), [("a.r.element", "a.r")]),
}


@pytest.mark.parametrize("name", READ)
def test_form_is_read_into_the_tables_column(name: str) -> None:
    """Where a form has several readings, or another case, it is the table's column."""
    kind, field, expected = READ[name]
    columns = schema_from_spark(struct(a=kind))
    assert [(dotted(at.logical), at.dotted) for at in schema_from_parquet([field], columns).leaves()] == expected


def test_variant_is_known_without_its_table() -> None:
    """By its annotation, or by the part that its writer has shredded; and in no other group."""
    whole, shredded = (leaf("metadata"), leaf("value")), group("typed_value", group("k", leaf("value")))
    found = {
        name: (schema.variants(), find_shredded(schema))
        for name, field in {
            "annotated": group("v", *whole, annotation="VARIANT"),
            "plain": group("v", *whole),
            "shredded": group("v", *whole, shredded),
            "scalar": group("v", leaf("metadata"), leaf("typed_value"), annotation="VARIANT"),
            "in a list": group("v", repeated("list", group("element", *whole, shredded)), annotation="LIST"),
            "said to be one": group("v", *whole, leaf("ssn"), annotation="VARIANT"),
        }.items()
        for schema in [schema_from_parquet([field])]
    }
    column, none, inner = frozenset({("v",)}), frozenset[tuple[str, ...]](), frozenset({("v", "element")})
    assert found == {
        "annotated": (column, none),
        "plain": (none, none),
        "shredded": (column, column),
        "scalar": (column, column),
        "in a list": (inner, inner),
        "said to be one": (none, none),
    }


@pytest.mark.parametrize(
    ("kind", "field", "message"),
    [
        (array("string"), leaf("a"), "column a is read as a list, but"),
        (array("string"), group("a", repeated("list", leaf("element"))), "column a is read as a list, but"),
        (array("string"), FORMS["map"][0] | {"name": "a"}, "column a is read as a list, but"),
        ("string", leaf("a", "repeated"), "column a is read as a column of single values, but"),
        ("string", FORMS["three levels"][0], "column a is read as a column of single values, but"),
        (array(array("string")), FORMS["two levels"][0], r"column a\.array is read as a list, but"),
        (struct(x="long"), leaf("a"), "column a is read as a struct, but"),
        (struct(x="long"), repeated("a", leaf("x")), "column a is read as a struct, but"),
        (struct(x=array("long")), group("a", leaf("X")), r"column a\.X is read as a list, but"),
        (MAP, FORMS["three levels"][0], "column a is read as a map, but"),
        (MAP, group("a", repeated("key_value", leaf("key")), annotation="MAP"), "column a is read as a map, but"),
        ("variant", leaf("a"), "column a is read as a VARIANT, but"),
    ],
)
def test_form_that_cannot_be_read_into_the_tables_column_is_refused(
    kind: Any, field: dict[str, Any], message: str
) -> None:
    """The message names the column of the file, and what the table has."""
    with pytest.raises(PlanError, match=message):
        schema_from_parquet([field], schema_from_spark(struct(a=kind)))


def test_names_that_differ_by_case_are_columns_of_their_own() -> None:
    """The exact name is read; where several differ by case alone, none is, as Spark refuses them."""
    columns = schema_from_spark(struct(Ab=array("long"), aB="long", x="long"))
    found = schema_from_parquet([leaf("aB"), leaf("AB"), leaf("x"), leaf("X")], columns).leaves()
    assert [at.logical for at in found] == [("aB",), ("AB",), ("x",), ("x",)]


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


@settings(max_examples=150)
@given(spark_schemas())
def test_leaves_are_what_is_really_written(document: dict[str, Any]) -> None:
    """The leaf paths told from a Spark schema are those of a real file of the same types."""
    assert [".".join(column.parquet) for column in schema_from_spark(document).leaves()] == written_paths(document)


@given(spark_schemas())
def test_both_sources_have_the_same_leaves(document: dict[str, Any]) -> None:
    """A file's message type and the Spark schema that it was written from have the same leaves, logical and Parquet."""
    assert schema_from_parquet(message_type(document)).leaves() == schema_from_spark(document).leaves()


@pytest.mark.slow
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
