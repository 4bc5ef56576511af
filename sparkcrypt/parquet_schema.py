"""The schema of a Parquet file as Spark reads it into a table's columns, by structure, whatever names its writer gave.

Each leaf of a file gets the logical path of the column that it is read into.  A form that has several readings, or
names that differ by case, are read as the table's columns say; what the table lacks is read as Spark infers it.
Source: LogicalTypes.md of parquet-format, "Nested Types" with its backward-compatibility rules;
``ParquetToSparkSchemaConverter``, ``ParquetReadSupport`` and ``ParquetRowConverter`` of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sparkcrypt.errors import PlanError, show
from sparkcrypt.schema import (
    ELEMENT,
    KEY,
    MAX_DEPTH,
    METADATA,
    VALUE,
    Kind,
    Node,
    Path,
    Schema,
    check_depth,
    shown_path,
)

Field: TypeAlias = Mapping[str, Any]
_HINT = "the jar and this helper do not belong together"
SHREDDED = "typed_value"
"""What the specification of VARIANT calls the part that is shredded; below it are keys of objects."""
_KINDS = {"leaf": "column of single values", "variant": "VARIANT"}


def schema_from_parquet(fields: Sequence[Field], columns: Schema | None = None) -> Schema:
    """Return the schema of a file.

    Args:
        fields: the fields of its message type, each ``{"name", "kind": "leaf"|"group", "annotation": "LIST"|"MAP"|…|
            None, "repetition", "children"}``.
        columns: the columns that it is read into: those of its table, or those that a reader asks for; None if they
            are not known.

    Returns:
        Its leaves, with the logical paths of ``columns`` where these have them.

    Raises:
        PlanError: a field has another form, is nested too deeply, or cannot be read into its column.
    """
    known = columns.fields if columns is not None else ()
    return Schema(tuple(_read(field, column, ()) for field, column in _pair(_check_fields(fields, ()), known)))


def find_shredded(schema: Schema) -> frozenset[Path]:
    """Return the logical paths of the VARIANTs of a file that are spread over more leaves than value and metadata."""
    return frozenset(
        chain[-2][0]
        for leaf, chain in schema.walk_leaves()
        if len(chain) > 1 and chain[-2][2].kind == "variant" and chain[-1][2].parquet != (chain[-1][2].name,)
    )


def _check_fields(fields: Any, above: Path) -> Sequence[Field]:
    """Return the fields of a message type after checking them and all fields below."""
    check_depth(above, 2 * MAX_DEPTH)  # a list or map has two names for one level
    if not isinstance(fields, list | tuple):
        raise PlanError(f"{_place(above)}: its fields are {show(fields)}; allowed: a list; {_HINT}")
    for field in fields:
        if not (
            isinstance(field, Mapping)
            and isinstance(field.get("name"), str)
            and field.get("kind") in ("leaf", "group")
            and isinstance(field.get("repetition"), str)
        ):
            raise PlanError(
                f"{_place(above)}: a field is {show(field)}; allowed: a name, a kind and a repetition; {_HINT}"
            )
        _check_fields(field.get("children") or [], (*above, field["name"]))
    return fields


def _place(path: Path) -> str:
    return f"column {shown_path(path)}" if path else "the schema"


def _pair(fields: Iterable[Field], nodes: Sequence[Node]) -> Iterator[tuple[Field, Node | None]]:
    """Yield each field with the column that Spark reads it into: that of its name, else the only one but for case."""
    exact = {node.name: node for node in nodes}
    folded: dict[str, list[Node]] = {}
    for node in nodes:
        folded.setdefault(node.name.lower(), []).append(node)
    for field in fields:
        alike = folded.get(field["name"].lower(), [])
        yield field, exact.get(field["name"]) or (alike[0] if len(alike) == 1 else None)


def _read(field: Field, column: Node | None, above: Path) -> Node:
    """Return a struct's field.  If it is repeated, and no annotated group is around it, it is a list of itself."""
    name, path = field["name"], (*above, field["name"])
    if field["repetition"] != "repeated":
        node = _read_value(field, column, path)
    else:
        element = _read_value(field, _get_child(column, "list", 0, path), path)
        node = Node(name, (name,), "list", (replace(element, name=ELEMENT, parquet=()),))
    return node if column is None else replace(node, name=column.name)


def _read_value(field: Field, column: Node | None, path: Path) -> Node:
    """Return a field as one value, whatever its repetition."""
    node = Node(field["name"], (field["name"],), "leaf")
    children = field.get("children") or []
    kind = _kind_of(field, children) if column is None else column.kind
    if not _may_be(kind, field, children):
        raise _not_as_read(path, column)
    if kind == "leaf":
        return node
    if kind == "variant":
        return replace(node, kind=kind, children=tuple(_read_variant(children)))
    if kind == "list":
        return replace(node, kind=kind, children=(_read_element(children[0], column, path),))
    if kind == "map":
        return replace(node, kind=kind, children=tuple(_read_pair(children[0], column, path)))
    known = column.children if column is not None else ()
    return replace(
        node, kind="struct", children=tuple(_read(child, below, path) for child, below in _pair(children, known))
    )


def _kind_of(field: Field, children: Sequence[Field]) -> Kind:
    """Return the kind that Spark infers."""
    if field["kind"] == "leaf":
        return "leaf"
    annotated = field.get("annotation")
    names = {child["name"] for child in children}
    if {METADATA} <= names <= {METADATA, VALUE, SHREDDED} and (annotated == "VARIANT" or SHREDDED in names):
        return "variant"
    kind: Kind = "list" if annotated == "LIST" else "map" if annotated in ("MAP", "MAP_KEY_VALUE") else "struct"
    return kind if _may_be(kind, field, children) else "struct"


def _may_be(kind: Kind, field: Field, children: Sequence[Field]) -> bool:
    """Return whether Spark can read a field into a column of a kind.

    A list needs its annotation; of a map only the groups are looked at.
    """
    if kind == "leaf" or field["kind"] == "leaf":
        return bool(kind == field["kind"])
    repeats = len(children) == 1 and children[0]["repetition"] == "repeated"
    if kind == "list":
        return repeats and field.get("annotation") == "LIST"
    return kind != "map" or (repeats and len(children[0].get("children") or ()) == len((KEY, VALUE)))


def _get_child(column: Node | None, kind: Kind, place: int, path: Path) -> Node | None:
    """Return a child of a column that must be of a kind."""
    if column is None:
        return None
    if column.kind != kind:
        raise _not_as_read(path, column)
    return column.children[place]


def _not_as_read(path: Path, column: Node | None) -> PlanError:
    kind = column.kind if column is not None else "leaf"
    return PlanError(
        f"column {shown_path(path)} is read as a {_KINDS.get(kind, kind)}, but the file's columns there are not those "
        f"of one; write the file anew with the table's type, or take it out of the table"
    )


def _read_element(repeated: Field, column: Node | None, path: Path) -> Node:
    """Return the element of a list: what is repeated, or the only field in it."""
    element = _get_child(column, "list", 0, path)
    inner, at = repeated.get("children") or [], (*path, repeated["name"])
    if _is_element(repeated, inner, path[-1], element):
        return replace(_read_value(repeated, element, at), name=ELEMENT)
    below = _read_value(inner[0], element, (*at, inner[0]["name"]))
    return replace(below, name=ELEMENT, parquet=(repeated["name"], inner[0]["name"]))


def _is_element(repeated: Field, inner: Sequence[Field], parent: str, element: Node | None) -> bool:
    """Return whether what is repeated is the element itself, by the rules of LogicalTypes.md, "Lists".

    Where these say no, Spark's reader by rows still takes it for the element if it has just the type of the table's.
    """
    if repeated["kind"] == "leaf" or len(inner) != 1 or inner[0]["repetition"] == "repeated":
        return True
    if repeated["name"] in ("array", parent + "_tuple"):
        return element is None or element.kind == "struct"
    return element is not None and _is_alike(_read_value(repeated, None, (parent,)), element)


def _is_alike(node: Node, column: Node) -> bool:
    """Return whether a node has the kind and the names of a column, and so has all below it."""
    if column.kind == "variant":
        return node.kind == "struct"
    return (
        node.kind == column.kind
        and len(node.children) == len(column.children)
        and all(
            own.name.lower() == known.name.lower() and _is_alike(own, known)
            for own, known in zip(node.children, column.children, strict=True)
        )
    )


def _read_pair(repeated: Field, column: Node | None, path: Path) -> Iterator[Node]:
    """Yield key and value of a map, which are told by their places."""
    at = (*path, repeated["name"])
    for place, (name, child) in enumerate(zip((KEY, VALUE), repeated["children"], strict=True)):
        node = _read(child, _get_child(column, "map", place, path), at)
        yield replace(node, name=name, parquet=(repeated["name"], *node.parquet))


def _read_variant(children: Sequence[Field], above: Path = ()) -> Iterator[Node]:
    """Yield the leaves of a VARIANT: all but its metadata have its value, whatever its writer shredded it into.

    Source: VariantShredding.md of parquet-format.
    """
    for child in children:
        path = (*above, child["name"])
        if child["kind"] == "group":
            yield from _read_variant(child.get("children") or [], path)
        else:
            yield Node(METADATA if path == (METADATA,) else VALUE, path, "leaf")
