"""One picture of a nested schema, whichever store it came from, and the names of its leaves in Parquet.

A node has two names: the *logical* path (``("people", "element", "ssn")``), which is the same for every writer, and the
Parquet path (``("people", "list", "element", "ssn")``), which depends on who wrote the file: parquet-mr and Spark write
``list.element`` and ``key_value.key``, Hive's SerDe ``bag.array_element`` and ``map.key``, old writers ``array``.
Source: LogicalTypes.md of parquet-format, "Nested Types".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote

from sparkcrypt.errors import PlanError

Path = tuple[str, ...]
Kind = Literal["leaf", "struct", "list", "map"]

ELEMENT, KEY, VALUE = "element", "key", "value"
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Node:
    """A field: its logical name, the Parquet names that stand for it below its parent, its children and its own tags.

    ``parquet`` has one name for a struct's field, two for the element of a list (``("list", "element")``) or a map's
    key or value, and none for a repeated field that is its own element.
    """

    name: str
    parquet: Path
    kind: Kind
    children: tuple[Node, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column: its logical path and its Parquet column path."""

    logical: Path
    parquet: Path

    @property
    def dotted(self) -> str:
        """The Parquet column path as text."""
        return dotted(self.parquet)


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a table or of a file, without partition columns when it is a file's."""

    fields: tuple[Node, ...]

    def leaves(self) -> tuple[Leaf, ...]:
        """Return every leaf column in schema order."""
        return tuple(leaf for leaf, _ in self.walk_leaves())

    def walk_leaves(self) -> Iterator[tuple[Leaf, tuple[tuple[Path, Path, Node], ...]]]:
        """Yield each leaf with its ancestors and itself, outermost first, as (logical path, Parquet path, node)."""
        for node in self.fields:
            yield from _walk(node, (), (), ())


def _walk(
    node: Node, logical: Path, parquet: Path, above: tuple[tuple[Path, Path, Node], ...]
) -> Iterator[tuple[Leaf, tuple[tuple[Path, Path, Node], ...]]]:
    logical, parquet = (*logical, node.name), (*parquet, *node.parquet)
    chain = (*above, (logical, parquet, node))
    if len(chain) > MAX_DEPTH:
        raise PlanError(f"column {dotted(logical[:3])}…: nested deeper than {MAX_DEPTH} levels; flatten it")
    if node.kind == "leaf":
        yield Leaf(logical, parquet), chain
    for child in node.children:
        yield from _walk(child, logical, parquet, chain)


def dotted(path: Sequence[str]) -> str:
    """Join a path with dots; ``.`` and ``%`` inside a name are percent-encoded so that the text has one meaning."""
    return ".".join(name.replace("%", "%25").replace(".", "%2E") for name in path)


def split_dotted(text: str) -> Path:
    """Split a dotted path into its names, undoing percent-encoding.

    Raises:
        PlanError: a name in it is empty.
    """
    names = tuple(unquote(part) for part in text.split("."))
    if not all(names):
        raise PlanError(f"column path {text!r} has an empty name; write names joined by single dots, a dot in a name as %2E")
    return names


def property_name(path: Sequence[str]) -> str:
    """Return a path as it stands in a table property's name: ASCII, safe for Hive, one text per path."""
    return ".".join(quote(name, safe="-_ ").replace(".", "%2E") for name in path)


# --- from Spark's schema JSON -----------------------------------------------------------------------------------------


def schema_from_spark(document: str | Mapping[str, Any], *, leave_out: Iterable[str] = ()) -> Schema:
    """Build a schema from Spark's schema JSON, with tags from each field's metadata.

    Args:
        document: what ``StructType.json()`` gives, as text or parsed.
        leave_out: names of top-level columns to skip (partition columns are not in files).

    Raises:
        PlanError: not a schema, or a field's ``tags`` metadata is neither a string nor a list of strings.
    """
    parsed = json.loads(document) if isinstance(document, str) else document
    if not isinstance(parsed, Mapping) or parsed.get("type") != "struct":
        raise PlanError("the Spark schema is not a struct; pass what StructType.json() returns")
    skipped = frozenset(leave_out)
    return Schema(tuple(_spark_field(field) for field in parsed["fields"] if field["name"] not in skipped))


def _spark_field(field: Mapping[str, Any]) -> Node:
    name = field["name"]
    tags = tags_from_metadata((field.get("metadata") or {}).get("tags"), name)
    return _spark_type(name, (name,), field["type"], tags)


def tags_from_metadata(value: object, column: str) -> tuple[str, ...]:
    """Return the tags that a metadata value holds: a list of strings, or one string with commas.

    Raises:
        PlanError: anything else; the message names the column.
    """
    if value is None:
        return ()
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise PlanError(f"column {column}: its tags are {value!r}; allowed: a list of names, or one text with commas")
    return tuple(name.strip() for name in names)


def _spark_type(name: str, parquet: Path, kind: Any, tags: tuple[str, ...]) -> Node:
    type_name = kind.get("type") if isinstance(kind, Mapping) else kind
    if type_name == "struct":
        return Node(name, parquet, "struct", tuple(_spark_field(field) for field in kind["fields"]), tags)
    if type_name == "array":
        element = _spark_type(ELEMENT, ("list", ELEMENT), kind["elementType"], ())
        return Node(name, parquet, "list", (element,), tags)
    if type_name == "map":
        key = _spark_type(KEY, ("key_value", KEY), kind["keyType"], ())
        value = _spark_type(VALUE, ("key_value", VALUE), kind["valueType"], ())
        return Node(name, parquet, "map", (key, value), tags)
    if type_name == "udt":
        return _spark_type(name, parquet, kind["sqlType"], tags)
    if type_name == "variant":
        return Node(name, parquet, "struct", (_leaf("value"), _leaf("metadata")), tags)
    return Node(name, parquet, "leaf", (), tags)


def _leaf(name: str) -> Node:
    return Node(name, (name,), "leaf")


# --- from a Parquet message type --------------------------------------------------------------------------------------


def schema_from_parquet(fields: Sequence[Mapping[str, Any]]) -> Schema:
    """Build a schema from a Parquet message type.

    Args:
        fields: the message's fields, each ``{"name", "kind": "leaf"|"group", "annotation": "LIST"|"MAP"|…|None,
            "repetition", "children"}``.
    """
    return Schema(tuple(_parquet_field(field, 0) for field in fields))


def _parquet_field(field: Mapping[str, Any], depth: int) -> Node:
    name, children = field["name"], field.get("children") or []
    if depth > MAX_DEPTH:
        raise PlanError(f"column {name}: the file's schema is nested deeper than {MAX_DEPTH} levels")
    annotation = field.get("annotation")
    if annotation == "LIST" and len(children) == 1 and children[0]["repetition"] == "repeated":
        return Node(name, (name,), "list", (_list_element(name, children[0], depth + 1),))
    if annotation in ("MAP", "MAP_KEY_VALUE") and _is_map(children):
        return Node(name, (name,), "map", _map_children(children[0], depth + 1))
    if field["kind"] == "leaf":
        return Node(name, (name,), "leaf")
    return Node(name, (name,), "struct", tuple(_parquet_field(child, depth + 1) for child in children))


def _is_map(children: Sequence[Mapping[str, Any]]) -> bool:
    return len(children) == 1 and children[0]["repetition"] == "repeated" and len(children[0].get("children") or ()) == 2


def _list_element(parent: str, repeated: Mapping[str, Any], depth: int) -> Node:
    """Tell the element of a list by the backward-compatibility rules of LogicalTypes.md, "Lists"."""
    inner = repeated.get("children") or []
    is_element = (
        repeated["kind"] == "leaf" or len(inner) != 1 or repeated["name"] in ("array", parent + "_tuple")
    )
    below = _parquet_field(repeated if is_element else inner[0], depth)
    names = (repeated["name"],) if is_element else (repeated["name"], inner[0]["name"])
    return Node(ELEMENT, names, below.kind, below.children)


def _map_children(repeated: Mapping[str, Any], depth: int) -> tuple[Node, ...]:
    nodes = [_parquet_field(child, depth) for child in repeated["children"]]
    return tuple(
        Node(logical, (repeated["name"], node.name), node.kind, node.children)
        for logical, node in zip((KEY, VALUE), nodes, strict=True)
    )
