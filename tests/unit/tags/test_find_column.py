"""A path finds the column that it names, by any of its names, and case only where nothing else tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from sparkcrypt.parquet_schema import schema_from_parquet
from sparkcrypt.schema import ColumnIndex, schema_from_spark
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
