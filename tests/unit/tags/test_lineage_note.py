"""Notes of where columns came from, in the Spark schema of files that anybody may have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.tags.lineage_note import ColumnLineage, lineage_of_schema


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


@pytest.mark.parametrize(
    "note",
    [7, "from", ["from"], {"from": ["a"]}, {"from": {"a": "b"}}, {"inherited": "pii"}, {"more": 1}, {"else": []}],
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
