"""Dotted paths and property names: one text per path, whatever signs a name holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import join_dotted, property_name, split_dotted
from sparkcrypt.tags.model import history_property, tag_property, tags_of_properties

NAMES = [
    "a.b",
    "a,b",
    "a;b",
    "a:b",
    "a%b",
    "a%2Eb",
    "a b",
    "Ab",
    "ß",
    "İ",
    "😀",
    'a"b',
    "a'b",
    "`a`",
    "a=b",
    "a/b",
    "\t",
    "%",
]
PATHS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize("name", NAMES)
def test_hard_names_come_back(name: str) -> None:
    """Each of the hard names comes back from its dotted path and its property."""
    for path in ((name,), ("s", name, "t"), (name, name)):
        assert split_dotted(join_dotted(path)) == path
        assert split_dotted(property_name(path)) == path


@given(PATHS)
def test_paths_come_back(path: tuple[str, ...]) -> None:
    """Every path comes back from both of its texts."""
    assert split_dotted(join_dotted(path)) == path
    assert split_dotted(property_name(path)) == path


@given(PATHS, PATHS)
def test_texts_are_injective(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    """Two paths never share a text."""
    for text in (join_dotted, property_name, tag_property, history_property):
        assert (text(first) == text(second)) == (first == second)


@given(PATHS)
def test_property_is_ascii_without_separators(path: tuple[str, ...]) -> None:
    """A property's name has only signs that Hive and Spark keep."""
    name = property_name(path)
    assert name.isascii()
    assert not set(name) & set(",;:=/\"'`{}$\\\n\t")


@given(PATHS, st.lists(st.text(st.sampled_from("abcé-_"), min_size=1), min_size=1))
def test_tags_come_back_from_properties(path: tuple[str, ...], tags: list[str]) -> None:
    """What is written to a table property is read back from it, also when its name arrives in lower case."""
    (column,) = tags_of_properties({tag_property(path): ", ".join(tags)})
    assert (column.path, column.tags, column.source) == (path, tuple(tags), "table property")
    (lower,) = tags_of_properties({tag_property(path).lower(): ",".join(tags)})
    assert [name.lower() for name in lower.path if name.isascii()] == [name.lower() for name in path if name.isascii()]


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b"])
def test_empty_name_is_refused(text: str) -> None:
    """A path with an empty name is refused, and how a dot is written is told."""
    with pytest.raises(PlanError, match=r"has an empty name; .* a dot in a name as %2E"):
        split_dotted(text)


@pytest.mark.parametrize("text", ["%FF", "a.%C3", "%ED%A0%80"])
def test_other_bytes_are_refused(text: str) -> None:
    """Percent-encoded bytes that are not UTF-8 are refused instead of replaced, which would give two paths one name."""
    with pytest.raises(PlanError, match="not percent-encoded UTF-8"):
        split_dotted(text)


def test_half_a_character_is_refused() -> None:
    """A name that UTF-8 cannot hold has no property; the column is told."""
    with pytest.raises(PlanError, match="half a character"):
        property_name(("a", "\ud800"))


@pytest.mark.parametrize("value", ["pii,", ",", "pii,,x"])
def test_empty_tag_is_refused_with_its_property(value: str) -> None:
    """An empty tag between commas is refused, and the property is named."""
    with pytest.raises(PlanError, match=r"table property parquet\.sparkcrypt\.tags\.a: .* is not a list of tags"):
        tags_of_properties({"parquet.sparkcrypt.tags.a": value})


def test_blank_property_is_no_tag() -> None:
    """A blanked property, which Spark cannot remove, is no tag; an empty column name is refused with the property."""
    assert tags_of_properties({"parquet.sparkcrypt.tags.a": " ", "other": "x"}) == ()
    with pytest.raises(PlanError, match=r"table property parquet\.sparkcrypt\.tags\.: column path"):
        tags_of_properties({"parquet.sparkcrypt.tags.": "pii"})
