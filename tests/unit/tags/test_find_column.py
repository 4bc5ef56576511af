"""Tags find their columns, are united, and are noted with what derives from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from sparkcrypt.schema import ColumnIndex, schema_from_parquet, schema_from_spark
from sparkcrypt.tags.avro import schema_from_avro
from sparkcrypt.tags.field_metadata import ColumnLineage, PartLineage, lineage_of_schema
from sparkcrypt.tags.model import TaggedColumn, unite_tags
from tests.unit.schema.message_types import FORMS
from tests.unit.schema.strategies import spark_schemas


def spark(*names: str) -> ColumnIndex:
    """Return the index of a schema of text columns."""
    fields = [{"name": name, "type": "string"} for name in names]
    return ColumnIndex(schema_from_spark({"type": "struct", "fields": fields}))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("Email",), [("Email",)]),
        (("email",), [("Email",)]),
        (("EMAIL",), [("Email",)]),
        (("x",), [("x",)]),
        (("X",), [("X",)]),
        (("é",), [("É",)]),
        (("a.b",), [("a.b",)]),
        (("a", "b"), []),
        (("ema il",), []),
        ((), []),
    ],
)
def test_case_counts_only_where_it_must(path: tuple[str, ...], found: list[tuple[str, ...]]) -> None:
    """The exact name wins, then the one name that differs by case; a dot in a name is no step."""
    assert list(spark("Email", "x", "X", "É", "a.b").find(path)) == found


def test_names_that_differ_by_case_are_all_told() -> None:
    """A name that could be two columns gives both, for the caller to refuse."""
    assert spark("Ab", "aB").find(("ab",)) == (("Ab",), ("aB",))


@pytest.mark.parametrize("name", FORMS)
def test_every_name_of_a_form_is_found(name: str) -> None:
    """Logical and Parquet paths of every writer's lists and maps find the same leaf."""
    schema = schema_from_parquet([FORMS[name][0]])
    index = ColumnIndex(schema)
    for leaf in schema.leaves():
        assert index.find(leaf.logical) == (leaf.logical,)
        ((*place,),) = index.find(leaf.parquet)  # of a repeated leaf the list, which has the same name
        assert tuple(place) == leaf.logical or (*place, "element") == leaf.logical


def test_hive_form_is_found_by_sparks_names() -> None:
    """A tag that was set by Spark's names finds the columns of a file that Hive wrote, groups included."""
    index = ColumnIndex(schema_from_parquet([FORMS["Hive"][0]]))
    assert index.find(("a", "list", "element")) == (("a", "element"),)
    assert index.find(("a", "LIST", "element")) == (("a", "element"),)
    for group in ("list", "bag"):
        assert index.find(("a", group)) == (("a",),)


def test_a_real_field_comes_before_a_list_s_group() -> None:
    """A field that is called as Spark calls a list's inside is found as itself."""
    repeated: dict[str, Any] = {"name": "list", "kind": "group", "repetition": "repeated", "children": []}
    for name in ("element", "other"):
        repeated["children"].append({"name": name, "kind": "leaf", "repetition": "optional"})
    field = {"name": "a", "kind": "group", "annotation": "LIST", "repetition": "optional", "children": [repeated]}
    index = ColumnIndex(schema_from_parquet([field]))
    assert index.find(("a", "list", "element")) == (("a", "element", "element"),)


@given(spark_schemas())
def test_every_field_of_any_schema_is_found(document: dict[str, Any]) -> None:
    """Every field finds itself by its logical path, and every leaf by its Parquet path."""
    schema = schema_from_spark(document)
    index = ColumnIndex(schema)
    for leaf, chain in schema.walk_leaves():
        ((*place,),) = index.find(leaf.parquet)  # of a repeated leaf the list, which has the same name
        assert tuple(place) == leaf.logical or (*place, "element") == leaf.logical
        assert all(index.find(logical) == (logical,) for logical, _, _ in chain)


def test_names_below_a_variant_are_the_variants() -> None:
    """Its values may be in any of its leaves, so a tag cannot be on one of them."""
    fields = [{"name": "s", "type": {"type": "struct", "fields": [{"name": "v", "type": "variant"}]}}]
    index = ColumnIndex(schema_from_spark({"type": "struct", "fields": fields}))
    for path in (("s", "v"), ("s", "v", "value"), ("S", "V", "METADATA")):
        assert index.find(path) == (("s", "v"),)
    assert index.find(("s",)) == (("s",),) and index.find(("s", "v", "typed_value")) == ()


FIELD = {"name": "email", "type": "string", "nullable": True, "metadata": {"tags": ["pii"]}}
SCHEMA = schema_from_spark(json.dumps({"type": "struct", "fields": [FIELD]}))
AVRO = schema_from_avro(
    json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "email", "type": "string", "confluent:tags": ["contact"]}]}
    ),
    where="r.avsc",
)


def test_tags_of_every_place_are_united_under_their_own_source() -> None:
    """A column may have tags from several places, and none of them hides another."""
    known = TaggedColumn(("id",), ("key",), "table property")
    found = unite_tags(
        schemas=[SCHEMA],
        properties={"parquet.sparkcrypt.tags.email": "fin", "other": "x"},
        avro=[AVRO, None],
        overlay=(("email", ("secret",)),),
        known=[known],
    )
    assert found == (
        TaggedColumn(("email",), ("pii",), "schema metadata"),
        known,
        TaggedColumn(("email",), ("fin",), "table property"),
        TaggedColumn(("email",), ("contact",), "avro schema"),
        TaggedColumn(("email",), ("secret",), "overlay"),
    )


def test_no_place_is_no_tag() -> None:
    """Places that are not there are passed over."""
    assert unite_tags() == unite_tags(avro=[None]) == ()


def document(*notes: Any) -> str:
    """Return a schema whose columns carry these notes and the tag pii; None is no note."""
    fields = [
        {
            "name": f"c{number}",
            "type": "string",
            "nullable": True,
            "metadata": {"tags": ["pii"], **({} if note is None else {"lineage": note})},
        }
        for number, note in enumerate(notes)
    ]
    return json.dumps({"type": "struct", "fields": fields})


def test_each_part_of_a_note() -> None:
    """Tables keep their columns apart, and what travels between processes is the same."""
    note = {
        "from": {"a.b": ["x", "y"], "c.d": ["x"]},
        "declassified": {"a.b": ["w"]},
        "conditions": {"a.b": ["z"]},
        "inherited": ["pii"],
        "more": True,
    }
    (found,) = lineage_of_schema(document(None, note))
    assert found == ColumnLineage(
        "c1",
        ("pii",),
        (("a.b", "x"), ("a.b", "y"), ("c.d", "x")),
        (("a.b", "w"),),
        (("a.b", "z"),),
        ("pii",),
        more=True,
    )
    assert ColumnLineage.from_list(json.loads(json.dumps(found.to_list()))) == found


def test_parts_of_a_nested_column() -> None:
    """Each part has its own tags and those of what it is in; what was recorded before parts were is read as it was."""
    element = {"type": "struct", "fields": [{"name": "a.b", "type": "string", "metadata": {"tags": ["fin"]}}]}
    of_list = {"type": "array", "elementType": element, "containsNull": True}
    note = {"from": {"d.t": ["s.x"]}, "into": {"l.list.element.a%2Eb": {"d.t": ["s.y", "s.z"]}}}
    fields = [{"name": "l", "type": of_list, "metadata": {"tags": ["pii"]}}]
    column = {"name": "c", "type": {"type": "struct", "fields": fields}, "metadata": {"lineage": note}}
    (found,) = lineage_of_schema(json.dumps({"type": "struct", "fields": [column]}))
    sources = (("d.t", "s.y"), ("d.t", "s.z"))
    assert found.parts == (PartLineage("l.list.element.a%2Eb", ("pii", "fin"), sources),)
    assert tuple(found.places) == (("c", (("d.t", "s.x"),)), ("c.l.list.element.a%2Eb", sources))
    assert found.sources == (("d.t", "s.x"), *sources)
    values = json.loads(json.dumps(found.to_list()))
    assert ColumnLineage.from_list(values) == found
    assert ColumnLineage.from_list(values[:-1]).parts == ()


@pytest.mark.parametrize(
    "note",
    [
        7,
        "from",
        ["from"],
        {"from": ["a"]},
        {"from": {"a": "b"}},
        {"into": {"a": {"b": "c"}}},
        {"into": []},
        {"inherited": "pii"},
        {"more": 1},
        {"else": []},
    ],
)
def test_what_the_extension_would_not_write_is_passed_over(note: Any) -> None:
    """A forged note neither counts nor hides the others."""
    assert [found.column for found in lineage_of_schema(document(note, {"inherited": ["pii"]}))] == ["c1"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"fields": 7}', '{"fields": [7]}', '{"fields": [{}]}', "[" * 9999]
)
def test_what_is_no_schema_has_no_lineage(text: str) -> None:
    """No text ends a scan."""
    assert lineage_of_schema(text) == ()
