"""A common model of nested schemas from any source, the Parquet names of their leaves, and the search for a column.

A node has two names: the *logical* path (``("people", "element", "ssn")``), which is the same for every writer, and the
Parquet path (``("people", "list", "element", "ssn")``), which depends on the writer: parquet-mr and Spark write
``list.element`` and ``key_value.key``, Hive's SerDe ``bag.array_element`` and ``map.key``, old writers ``array``.

The schema of a Parquet file is read by structure, as Spark reads it into a table's columns: each leaf gets the logical
path of the column that it is read into.  A form that has several readings, or names that differ by case, are read as
the table's columns say; what the table lacks is read as Spark infers it.
Source: LogicalTypes.md of parquet-format, "Nested Types" with its backward-compatibility rules;
``ParquetToSparkSchemaConverter``, ``ParquetReadSupport`` and ``ParquetRowConverter`` of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, unquote

from sparkcrypt.errors import PlanError, show

Path = tuple[str, ...]
Kind = Literal["leaf", "struct", "list", "map", "variant"]

ELEMENT, KEY, VALUE, METADATA = "element", "key", "value", "metadata"
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Node:
    """A field: its logical name, the Parquet names that stand for it below its parent, its children and its own tags.

    ``parquet`` has one name for a struct's field, two for the element of a list (``("list", "element")``) or a map's
    key or value, and none for a repeated field that is its own element.  A VARIANT has the leaves ``value`` and
    ``metadata``; in files the first may be spread over more leaves, by a writer that shreds it.
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
        return join_dotted(self.parquet)


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a table or of a file, without partition columns when it is a file's."""

    fields: tuple[Node, ...]

    def leaves(self) -> tuple[Leaf, ...]:
        """Return every leaf column in schema order."""
        return tuple(leaf for leaf, _ in self.walk_leaves())

    def variants(self) -> frozenset[Path]:
        """Return the logical paths of the VARIANTs."""
        return frozenset(path for _, chain in self.walk_leaves() for path, _, node in chain if node.kind == "variant")

    def walk_leaves(self) -> Iterator[tuple[Leaf, tuple[tuple[Path, Path, Node], ...]]]:
        """Yield each leaf with its ancestors and itself, outermost first, as (logical path, Parquet path, node)."""
        for node in self.fields:
            yield from _walk(node, (), (), ())


def _walk(
    node: Node, logical: Path, parquet: Path, above: tuple[tuple[Path, Path, Node], ...]
) -> Iterator[tuple[Leaf, tuple[tuple[Path, Path, Node], ...]]]:
    logical, parquet = (*logical, node.name), (*parquet, *node.parquet)
    chain = (*above, (logical, parquet, node))
    check_depth(logical)
    if node.kind == "leaf":
        yield Leaf(logical, parquet), chain
    for child in node.children:
        yield from _walk(child, logical, parquet, chain)


def join_dotted(path: Sequence[str]) -> str:
    """Join a path with dots; ``.`` and ``%`` inside a name are percent-encoded so that the text has one meaning."""
    return ".".join(name.replace("%", "%25").replace(".", "%2E") for name in path)


def walk_down(path: Path) -> Iterator[Path]:
    """Yield the path of each field in which one is, outermost first, and its own."""
    return (path[:end] for end in range(1, len(path) + 1))


def split_dotted(text: str) -> Path:
    """Split a dotted path into its names, undoing percent-encoding.

    Raises:
        PlanError: a name in it is empty, or is not text.
    """
    try:
        names = tuple(unquote(part, errors="strict") for part in text.split("."))
    except UnicodeError as error:
        raise PlanError(
            f"column path {show(text)} is not percent-encoded UTF-8; write a % in a name as %25, a dot as %2E"
        ) from error
    if not all(names):
        raise PlanError(
            f"column path {show(text)} has an empty name; write names joined by single dots, a dot in a name as %2E"
        )
    return names


def property_name(path: Sequence[str]) -> str:
    """Return a path in the form used in names of table properties: ASCII, safe for Hive, unique per path.

    Raises:
        PlanError: a name cannot be encoded as UTF-8.
    """
    try:
        return ".".join(quote(name, safe="-_ ").replace(".", "%2E") for name in path)
    except UnicodeError as error:
        raise PlanError(f"column {join_dotted(path)!a}: its name holds half a character; rename the column") from error


_SPARK_HINT = "pass what StructType.json() returns"


def schema_from_spark(
    document: str | Mapping[str, Any],
    *,
    leave_out: Iterable[str] = (),
    object_hook: Callable[[dict[str, Any]], Any] | None = None,
) -> Schema:
    """Build a schema from Spark's schema JSON, with tags from each field's metadata.

    Args:
        document: what ``StructType.json()`` returns, as text or parsed.
        leave_out: names of top-level columns to leave out (partition columns are not in files); a name that matches no
            column exactly is matched without regard to case.
        object_hook: as of ``json.loads``, for a text.

    Raises:
        PlanError: not a schema, nested too deeply, or a field's ``tags`` are neither a text nor a list of texts.
    """
    try:
        parsed = json.loads(document, object_hook=object_hook) if isinstance(document, str) else document
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the Spark schema is not JSON; {_SPARK_HINT}") from error
    if not isinstance(parsed, Mapping) or parsed.get("type") != "struct":
        raise PlanError(f"the Spark schema is not a struct; {_SPARK_HINT}")
    fields = _spark_fields(parsed, ())
    names = {node.name for node in fields}
    left_out = frozenset(leave_out)
    folded = {name.lower() for name in left_out - names}
    return Schema(tuple(node for node in fields if node.name not in left_out and node.name.lower() not in folded))


def _spark_fields(struct: Mapping[str, Any], above: Path) -> tuple[Node, ...]:
    fields = struct.get("fields")
    if not isinstance(fields, list):
        raise PlanError(f"{_place(above)}: a struct's 'fields' is {show(fields)}; allowed: a list; {_SPARK_HINT}")
    return tuple(_spark_field(field, above) for field in fields)


def _spark_field(field: Any, above: Path) -> Node:
    name = field.get("name") if isinstance(field, Mapping) else None
    if not isinstance(name, str):
        raise PlanError(f"{_place(above)}: a field is {show(field)}; allowed: an object with a name; {_SPARK_HINT}")
    path = (*above, name)
    metadata = field.get("metadata")
    if not isinstance(metadata, Mapping | None):
        raise PlanError(f"{_place(path)}: its metadata is {show(metadata)}; allowed: an object; {_SPARK_HINT}")
    tags = tags_from_metadata((metadata or {}).get("tags"), join_dotted(path))
    return _spark_type(Node(name, (name,), "leaf", (), tags), field.get("type"), path)


def tags_from_metadata(value: object, column: str) -> tuple[str, ...]:
    """Return the tags that a metadata value holds: a list of strings, or one string with commas.

    Raises:
        PlanError: anything else; the message names the column.
    """
    if value is None:
        return ()
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise PlanError(
            f"column {column}: its tags are {show(value)}; allowed: a list of names, or one text with commas"
        )
    return tuple(name.strip() for name in names)


def _spark_type(node: Node, kind: Any, path: Path) -> Node:
    """Return a node with the kind and children of its type; ``path`` is for messages and the limit of depth."""
    check_depth(path)
    while isinstance(kind, Mapping) and kind.get("type") == "udt":
        kind = kind.get("sqlType")
    if kind == "variant":
        return replace(node, kind="variant", children=(_leaf(VALUE), _leaf(METADATA)))
    if isinstance(kind, str) and kind:
        return node
    type_name = kind.get("type") if isinstance(kind, Mapping) else None
    if type_name == "struct":
        return replace(node, kind="struct", children=_spark_fields(kind, path))
    if type_name == "array":
        element = _spark_type(Node(ELEMENT, ("list", ELEMENT), "leaf"), kind.get("elementType"), (*path, ELEMENT))
        return replace(node, kind="list", children=(element,))
    if type_name == "map":
        key = _spark_type(Node(KEY, ("key_value", KEY), "leaf"), kind.get("keyType"), (*path, KEY))
        value = _spark_type(Node(VALUE, ("key_value", VALUE), "leaf"), kind.get("valueType"), (*path, VALUE))
        return replace(node, kind="map", children=(key, value))
    raise PlanError(
        f"{_place(path)}: its type is {show(kind)}; allowed: a type's name, or a struct, array, map or udt; "
        f"{_SPARK_HINT}"
    )


def _leaf(name: str) -> Node:
    return Node(name, (name,), "leaf")


def check_depth(path: Path, most: int = MAX_DEPTH) -> None:
    """Check that a path is not nested deeper than readers and writers support.

    Raises:
        PlanError: it has more than ``most`` names.
    """
    if len(path) > most:
        raise PlanError(f"column {shown_path(path[:3])}…: nested deeper than {MAX_DEPTH} levels; flatten it")


def shown_path(path: Path) -> str:
    """Return a column path for a message; a long one is cut and ends in ``…``."""
    text = join_dotted(path)
    return text if len(text) <= 200 else text[:197] + "…"


def _place(path: Path) -> str:
    return f"column {shown_path(path)}" if path else "the schema"


_Chain = tuple[tuple[Path, Path, Node], ...]
_STANDARD = {"list": "list", "map": "key_value"}


class ColumnIndex:
    """An index of every name of every field of a schema.

    In order of precedence: its logical path, its Parquet path, its Parquet path as Spark writes it, and for a list or
    map the group below it, which has no logical path of its own (``people.list`` is ``people``).  Names below a VARIANT
    are the VARIANT's, since values may be in any of its leaves.
    """

    def __init__(self, schema: Schema) -> None:
        chains = [chain for _, chain in schema.walk_leaves()]
        whole = {chain[-1][0]: above for chain in chains for above, _, node in chain if node.kind == "variant"}
        self._exact: dict[Path, Path] = {}
        self._folded: dict[Path, tuple[Path, ...]] = {}
        for names_of in (_logical_names, _parquet_names, _standard_names, _group_names):
            folded: dict[Path, tuple[Path, ...]] = {}
            for chain in chains:
                for name, place in names_of(chain):
                    logical = whole.get(place, place)
                    self._exact.setdefault(name, logical)
                    lower = fold(name)
                    folded[lower] = tuple(dict.fromkeys((*folded.get(lower, ()), logical)))
            self._folded = folded | self._folded

    def find(self, path: Path) -> tuple[Path, ...]:
        """Return the logical paths that a path may mean: one, none, or several that differ from it only by case."""
        exact = self._exact.get(path)
        return (exact,) if exact is not None else tuple(sorted(self._folded.get(fold(path), ())))


def fold(path: Path) -> Path:
    """Return a path in lower case, to compare it without case, as the Hive metastore and Spark do by default."""
    return tuple(name.lower() for name in path)


def _logical_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    return ((logical, logical) for logical, _, _ in chain)


def _parquet_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    return ((parquet, logical) for logical, parquet, _ in chain)


def _standard_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    standard: Path = ()
    above = ""
    for logical, _, node in chain:
        below = (_STANDARD[above], node.name) if above in _STANDARD else (node.name,)
        standard, above = (*standard, *below), node.kind
        yield standard, logical


def _group_names(chain: _Chain) -> Iterator[tuple[Path, Path]]:
    standard = [name for name, _ in _standard_names(chain)]
    for place, (logical, parquet, node) in enumerate(chain[1:], 1):
        if chain[place - 1][2].kind in _STANDARD:
            if len(node.parquet) > 1:
                yield parquet[:-1], logical[:-1]
            yield standard[place][:-1], logical[:-1]


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
