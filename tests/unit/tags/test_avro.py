"""Avro schemas: tags at any depth, the shape that Spark gives their columns, and every malformed form."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import fastavro.schema as fastavro_schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import join_dotted
from sparkcrypt.tags.avro import MAX_FIELDS, read_avro_file, schema_from_avro
from sparkcrypt.tags.model import tags_of_avro


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Return an Avro record."""
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, *tags: str, **more: Any) -> dict[str, Any]:
    """Return an Avro field with tags."""
    return {"name": name, "type": kind, **({"confluent:tags": list(tags)} if tags else {}), **more}


def leaves(*fields: Any) -> list[str]:
    """Return the leaf paths of a record of fields."""
    return [leaf.dotted for leaf in schema_from_avro(json.dumps(record(*fields))).leaves()]


def tags(*fields: Any, **more: Any) -> dict[str, tuple[str, ...]]:
    """Return the tags of a record of fields."""
    schema = schema_from_avro(json.dumps(record(*fields, **more)))
    return {join_dotted(column.path): column.tags for column in tags_of_avro(schema)}


ADDRESS = record(field("street", "string"), field("zip", "string", "pii"), name="Address", namespace="com.x")
TYPES = {
    "primitive": ("long", ["c"]),
    "primitive as an object": ({"type": "string"}, ["c"]),
    "wrapped twice": ({"type": {"type": "string"}}, ["c"]),
    "nullable": (["null", "string"], ["c"]),
    "nullable, null last": (["string", "null"], ["c"]),
    "nullable, null as an object": ([{"type": "null"}, "string"], ["c"]),
    "only null": (["null"], ["c"]),
    "a union of one": (["string"], ["c"]),
    "int and long": (["null", "int", "long"], ["c"]),
    "double and float": (["double", {"type": "float"}], ["c"]),
    "int and string": (["int", "null", "string"], ["c.member0", "c.member1"]),
    "int, long and float": (["int", "long", "float"], ["c.member0", "c.member1", "c.member2"]),
    "date": ({"type": "int", "logicalType": "date"}, ["c"]),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, ["c"]),
    "uuid": ({"type": "string", "logicalType": "uuid"}, ["c"]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A"]}, ["c"]),
    "fixed": ({"type": "fixed", "name": "F", "size": 4}, ["c"]),
    "array": ({"type": "array", "items": "string"}, ["c.list.element"]),
    "map": ({"type": "map", "values": ["null", "long"]}, ["c.key_value.key", "c.key_value.value"]),
    "record": (ADDRESS, ["c.street", "c.zip"]),
    "nullable record": (["null", ADDRESS], ["c.street", "c.zip"]),
    "array of records": ({"type": "array", "items": ADDRESS}, ["c.list.element.street", "c.list.element.zip"]),
    "map of arrays": (
        {"type": "map", "values": {"type": "array", "items": "int"}},
        ["c.key_value.key", "c.key_value.value.list.element"],
    ),
    "record without fields": (record(name="Empty"), []),
}


@pytest.mark.parametrize("name", TYPES)
def test_type_has_the_columns_that_spark_gives_it(name: str) -> None:
    """Each Avro type has the leaf columns that Spark writes for it, and is valid for another parser too."""
    kind, expected = TYPES[name]
    assert leaves(field("c", kind)) == expected
    if name not in ("wrapped twice",):
        fastavro_schema.parse_schema(record(field("c", kind)))


def test_tags_are_read_at_every_depth_and_place() -> None:
    """Tags count on fields, on the objects of their types, inside unions, arrays and maps, as lists and as texts."""
    tagged = {"type": "string", "confluent:tags": ["b", "a"]}
    assert tags(
        field("on_field", "string", "a", "b"),
        field("as_text", "string", **{"confluent:tags": "a, b"}),
        field("on_type", tagged),
        field("on_both", tagged, "c", "a"),
        field("in_union", ["null", tagged]),
        field("in_array", {"type": "array", "items": tagged}),
        field("in_map", {"type": "map", "values": ["null", tagged], "confluent:tags": ["m"]}, "n"),
        field("in_members", ["int", tagged]),
        field("in_widened", ["int", {"type": "long", "confluent:tags": ["w"]}]),
        field("in_record", record(field("x", "string", "x"), name="S", **{"confluent:tags": ["s"]})),
        field("in_enum", {"type": "enum", "name": "E", "symbols": ["A"], "confluent:tags": ["e"]}),
        field("none", "string", **{"confluent:tags": []}),
    ) == {
        "on_field": ("a", "b"),
        "as_text": ("a", "b"),
        "on_type": ("b", "a"),
        "on_both": ("c", "a", "b"),
        "in_union": ("b", "a"),
        "in_array.element": ("b", "a"),
        "in_map": ("n", "m"),
        "in_map.value": ("b", "a"),
        "in_members.member1": ("b", "a"),
        "in_widened": ("w",),
        "in_record": ("s",),
        "in_record.x": ("x",),
        "in_enum": ("e",),
    }


def test_tags_of_the_whole_record_cover_fields_without_their_own() -> None:
    """A tag on the top-level record is that of each of its fields which has none."""
    assert tags(field("a", "int"), field("b", "int", "own"), **{"confluent:tags": ["all"]}) == {
        "a": ("all",),
        "b": ("own",),
    }


def test_named_types_are_used_again_by_either_name() -> None:
    """A type is used again by its full name, or by its short name inside its namespace, with its tags."""
    assert tags(field("a", ADDRESS), field("b", "com.x.Address"), namespace="org") == {
        "a.zip": ("pii",),
        "b.zip": ("pii",),
    }
    assert tags(field("a", ADDRESS), field("b", ["null", "Address"]), namespace="com.x") == {
        "a.zip": ("pii",),
        "b.zip": ("pii",),
    }
    dotted_name = {**ADDRESS, "name": "com.y.Address"}
    assert tags(field("a", dotted_name), field("b", "com.y.Address"))["b.zip"] == ("pii",)


REFUSED = {
    "not JSON": ("{", "S: not JSON .*; pass the text of an .avsc file"),
    "deep JSON": ("[" * 100_000, "S: not JSON"),
    "a list": ("[]", "the top level is not a record"),
    "a primitive": ('"string"', "the top level is not a record"),
    "an enum": ({"type": "enum", "name": "E", "symbols": []}, "the top level is not a record"),
    "no name": ({"type": "record", "fields": []}, "the top level: its record type has no name"),
    "no fields": ({"type": "record", "name": "R"}, "the top level: .* has no 'fields'; Avro requires it"),
    "fields no list": (record(name="R") | {"fields": {}}, "'fields' of record R is {}; allowed: a list"),
    "field no object": (record("a"), "a field is 'a'; allowed: an object with a name and a type"),
    "field without name": (record({"type": "int"}), "the top level: a field is"),
    "field with an empty name": (record(field("", "int")), "the top level: a field is"),
    "field without type": (record({"name": "c"}), "column c: .* has no 'type'"),
    "field twice": (record(field("c", "int"), field("c", "int")), "column c: is twice in record R"),
    "unknown type": (record(field("c", "strin")), "column c: has the type 'strin', which is neither a primitive nor defined"),  # noqa: E501  # one message, one line
    "type of another namespace": (
        record(field("a", ADDRESS), field("c", "Address")), "column c: has the type 'Address', which is neither",
    ),
    "type a number": (record(field("c", 7)), "column c: has the type 7; allowed: a name, an object or a list"),
    "type null": (record(field("c", None)), "column c: has the type None"),
    "type object without type": (record(field("c", {"items": "int"})), "column c: .* has no 'type'"),
    "array without items": (record(field("c", {"type": "array"})), "column c: .* has no 'items'"),
    "map without values": (record(field("c", {"type": "map"})), "column c: .* has no 'values'"),
    "items unknown": (record(field("c", {"type": "array", "items": "x"})), r"column c\.element: has the type 'x'"),
    "record without fields": (record(field("c", {"type": "record", "name": "X"})), "column c: .* has no 'fields'"),
    "enum without name": (record(field("c", {"type": "enum"})), "column c: its enum type has no name"),
    "fixed with a bad name": (record(field("c", {"type": "fixed", "name": 7})), "column c: its fixed type has no name"),
    "union in a union": (record(field("c", ["null", ["int"]])), "column c: has a union directly in a union"),
    "type defined twice": (
        record(field("a", ADDRESS), field("b", {**ADDRESS, "fields": []})), r"column b: defines the type com\.x\.Address a second",  # noqa: E501  # one message, one line
    ),
    "recursive": (record(field("next", ["null", "R"])), "column next: contains its own type R; .* tag the fields above it"),  # noqa: E501  # one message, one line
    "recursive by an array": (
        record(field("a", record(field("b", {"type": "array", "items": "R"}), name="S"))),
        r"column a\.b\.element: contains its own type R",
    ),
    "tags a number": (record(field("c", "int") | {"confluent:tags": 7}), "column c: its tags are 7"),
    "tags of numbers": (record(field("c", "int") | {"confluent:tags": [7]}), r"column c: its tags are \[7\]"),
    "tags on a type a number": (record(field("c", {"type": "int", "confluent:tags": 7})), "column c: its tags are 7"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_schema_is_refused_with_its_place(name: str) -> None:
    """Each malformed form is a PlanError that names the source and the column."""
    document, message = REFUSED[name]
    with pytest.raises(PlanError, match=message):
        schema_from_avro(document if isinstance(document, str) else json.dumps(document), where="S")


@pytest.mark.slow
def test_reused_types_do_not_grow_without_bound() -> None:
    """Types that hold the one before them twice are refused at the number of columns that Parquet has."""
    kinds: Any = record(field("x", "int"), name="R0")
    for level in range(1, 64):
        kinds = record(field("a", kinds), field("b", f"R{level - 1}"), name=f"R{level}")
    with pytest.raises(PlanError, match=f"beyond the {MAX_FIELDS} columns|nested deeper|nested too deeply"):
        schema_from_avro(json.dumps(kinds))
    wide = [record(field("x", "int"), name="R0")]
    flat = [field("f0", wide[0])]
    for level in range(1, 40):
        flat.append(
            field(f"f{level}", record(field("a", f"R{level - 1}"), field("b", f"R{level - 1}"), name=f"R{level}"))
        )
    with pytest.raises(PlanError, match=f"beyond the {MAX_FIELDS} columns"):
        schema_from_avro(json.dumps(record(*flat)))


def test_a_name_that_stands_twice_is_found_soon() -> None:
    """Thirty thousand fields, the last name twice."""
    fields = [field(f"f{number}", "int") for number in range(30_000)]
    began = time.process_time()
    with pytest.raises(PlanError, match="column f29999: is twice in record R"):
        schema_from_avro(json.dumps(record(*fields, fields[-1])))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("wrap", ["array", "map", "record", "object", "union"])
def test_deep_nesting_is_refused_without_overflow(wrap: str) -> None:
    """Types nested beyond the limit are refused, and the stack does not overflow."""
    kind: Any = "int"
    for level in range(300):
        kind = {
            "array": {"type": "array", "items": kind},
            "map": {"type": "map", "values": kind},
            "record": record(field("x", kind), name=f"R{level}"),
            "object": {"type": kind},
            "union": ["null", {"type": "array", "items": kind}],
        }[wrap]
    if wrap == "object":
        kind = {"type": "array", "items": kind}
    try:
        schema_from_avro(json.dumps(record(field("c", kind))))
    except PlanError as error:
        assert "nested" in str(error)
    else:
        assert wrap == "object"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.sampled_from(["record", "array", "map", "R", "int"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "namespace", "fields", "items", "values", "confluent:tags"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=400)
@given(JSON_VALUES)
def test_any_json_is_a_schema_or_refused(value: Any) -> None:
    """Whatever JSON arrives, whole or as a type or a field, the answer is a schema or a PlanError."""
    for document in (value, record(field("c", value)), record(value), record() | {"fields": value}):
        try:
            schema_from_avro(json.dumps(document)).leaves()
        except PlanError as error:
            assert str(error).startswith("Avro schema: ") or "its tags are" in str(error)


@st.composite
def valid_types(draw: st.DrawFn, depth: int = 3) -> Any:
    """Return types that Avro allows."""
    choice = draw(st.integers(0, 6 if depth else 1))
    if choice <= 1:
        return draw(st.sampled_from(["int", "string", {"type": "long", "logicalType": "timestamp-micros"}]))
    inner = draw(valid_types(depth=depth - 1))
    if choice == 2:
        return {"type": "array", "items": inner}
    if choice == 3:
        return {"type": "map", "values": inner}
    if choice == 4 and not isinstance(inner, list):
        return ["null", inner]
    name = f"N{draw(st.uuids()).hex}"
    return record(field("x", inner, "pii"), field("y", "int"), name=name)


@settings(max_examples=100)
@given(st.lists(valid_types(), min_size=1, max_size=3))
def test_what_another_parser_takes_is_taken(kinds: list[Any]) -> None:
    """Schemas that fastavro parses are parsed, and every tag on a field is found."""
    document = record(*[field(f"f{place}", kind) for place, kind in enumerate(kinds)])
    fastavro_schema.parse_schema(json.loads(json.dumps(document)))
    schema = schema_from_avro(json.dumps(document))
    assert len(tags_of_avro(schema)) == json.dumps(document).count("confluent:tags")


def test_file_is_read(tmp_path: Path) -> None:
    """An .avsc file is read, with a byte order mark or without."""
    for mark in ("", "\ufeff"):
        (tmp_path / "s.avsc").write_text(mark + json.dumps(record(field("ß", "int", "pii"))), encoding="utf-8")
        assert tags_of_avro(read_avro_file(tmp_path / "s.avsc"))[0].path == ("ß",)


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A missing file, a folder, and a file that is not UTF-8 are PlanErrors that name it."""
    (tmp_path / "s.avsc").write_bytes(b"\xff\xfe{")
    for path, reason in (
        (tmp_path / "none.avsc", "No such file"),
        (tmp_path, "directory"),
        (tmp_path / "s.avsc", "not UTF-8"),
    ):
        with pytest.raises(PlanError, match=f"cannot be read .*{reason}.*give the path of an .avsc file"):
            read_avro_file(path)


def test_tags_may_come_from_outside_and_types_from_other_schemas() -> None:
    """A field is asked for by its record's full name; named types of other schemas are known, in their order."""
    street = json.dumps({"type": "enum", "name": "x.Street", "symbols": ["A"]})
    home = json.dumps(record(field("street", "Street"), name="x.Home"))
    text = json.dumps(record(field("home", "x.Home", "own"), name="R", namespace="y"))
    listed = {"y.R.home": ["own", "more"], "x.Home.street": ["pii"]}
    schema = schema_from_avro(text, references=[street, home], tags_of=lambda name: listed.get(name, ()))
    found = {join_dotted(column.path): column.tags for column in tags_of_avro(schema)}
    assert found == {"home": ("own", "more"), "home.street": ("pii",)}
    with pytest.raises(PlanError, match="not JSON"):
        schema_from_avro(text, references=["{"])
