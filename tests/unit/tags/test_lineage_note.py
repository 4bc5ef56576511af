"""Notes of where columns came from, in the Spark schema of files that anybody may have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.tags.lineage_note import ColumnLineage, PartLineage, is_same_leaf, lineage_of_schema


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
    ("noted", "leaf", "same"),
    [
        ("s.mail", "s.Mail", True),
        ("s.mail", "s.mailbox", False),
        ("s.mail", "s.name", False),
        ("s", "s.mail", True),  # as earlier releases noted it
        ("s.mail", "s", True),
        ("a.b", "a%2Eb.c", True),  # an earlier release's name of a column
        ("a.b", "a.c", False),
    ],
)
def test_columns_in_notes_stand_for_leaves(noted: str, leaf: str, same: bool) -> None:
    """A column stands for all that is in it."""
    assert is_same_leaf(noted, leaf) is same


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
