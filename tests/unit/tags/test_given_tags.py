"""Tags that users give: their forms, and their places in the schema of a frame."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import Path, schema_from_spark
from sparkcrypt.tags.avro import schema_from_avro
from sparkcrypt.tags.field_metadata import add_tags
from sparkcrypt.tags.model import given_tags, tags_of_schema

PERSON = {"type": "struct", "fields": [{"name": "Email", "type": "string"}, {"name": "age", "type": "integer"}]}
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "integer", "nullable": True, "metadata": {"comment": "kept", "tags": ["public"]}},
        {"name": "person", "type": PERSON},
        {"name": "people", "type": {"type": "array", "elementType": PERSON, "containsNull": True}},
        {"name": "phones", "type": {"type": "map", "keyType": "string", "valueType": "string"}},
        {"name": "point", "type": {"type": "udt", "sqlType": PERSON}},
    ],
}
AVRO = """{"type": "record", "name": "r", "fields": [
  {"name": "id", "type": "int", "confluent:tags": ["PII"]},
  {"name": "city", "type": "string"}]}"""


def tagged(wanted: dict[Path, tuple[str, ...]]) -> dict[Path, tuple[str, ...]]:
    """Return the tags of the schema's columns, after some were added."""
    schema = schema_from_spark(add_tags(json.dumps(SCHEMA), wanted))
    return {column.path: column.tags for column in tags_of_schema(schema)}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("person",), ("person",)),
        (("PERSON", "email"), ("person", "Email")),
        (("people", "element", "Email"), ("people", "element", "Email")),
        (("people", "element"), ("people",)),
        (("phones", "value"), ("phones",)),
        (("point", "Email"), ("point",)),
    ],
)
def test_tags_are_put_where_spark_keeps_them(path: Path, place: Path) -> None:
    """A field has its own, in any depth and case; what has no metadata gives them to the field that it is in."""
    assert tagged({path: ("pii",)}) == {("id",): ("public",), place: ("pii",)}


def test_tags_and_comments_that_are_there_stay() -> None:
    """A further tag comes after them, and a tag is there once."""
    assert tagged({("id",): ("pii", "public")}) == {("id",): ("public", "pii")}
    fields = json.loads(add_tags(json.dumps(SCHEMA), {("id",): ("pii",)}))["fields"]
    assert fields[0]["metadata"]["comment"] == "kept"
    assert fields[1:] == SCHEMA["fields"][1:]


def test_a_column_that_is_not_there_is_named() -> None:
    """With those that are; one that could be two is named too."""
    with pytest.raises(PlanError, match=r"'mail' is not a column; allowed: id, person, person\.Email, person\.age, "):
        tagged({("mail",): ("pii",)})
    twice = {"type": "struct", "fields": [{"name": name, "type": "string"} for name in ("aB", "Ab")]}
    with pytest.raises(PlanError, match=r"'ab' is the name of several columns; allowed: Ab, aB"):
        add_tags(json.dumps(twice), {("ab",): ("pii",)})


def test_tags_are_given_as_a_text_as_several_and_by_avro() -> None:
    """All are united, those of the Avro schema first."""
    given = given_tags({"id": "fin", "a.b": ["pii", "fin"], "c": "pii, fin"}, schema_from_avro(AVRO))
    assert given == {("id",): ("PII", "fin"), ("a", "b"): ("pii", "fin"), ("c",): ("pii", "fin")}


def test_no_tag_is_an_error() -> None:
    """A call that would tag nothing says so, and which column lacks a tag."""
    for tags, avro in ((None, None), ({}, None), (None, schema_from_avro(AVRO.replace("confluent:tags", "other")))):
        with pytest.raises(PlanError, match="no tag is given; allowed: "):
            given_tags(tags, avro)
    with pytest.raises(PlanError, match="column id: no tag is given"):
        given_tags({"id": []}, None)
    with pytest.raises(PlanError, match="column id: its tags are"):
        given_tags({"id": [1]}, None)  # type: ignore[list-item]  # what a caller without types may give
