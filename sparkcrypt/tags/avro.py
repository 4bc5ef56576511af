"""Tags in an Avro schema: the property ``confluent:tags`` of fields and types, at any depth.

Source: the Avro 1.12 specification, "Schema Declaration"; Confluent's inline tags.  Unions have the shape that Spark's
``SchemaConverters`` gives them, from which tables with an Avro schema get their columns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from sparkcrypt.errors import PlanError, show
from sparkcrypt.schema import ELEMENT, KEY, VALUE, Node, Path, Schema, check_depth, shown_path, tags_from_metadata

PROPERTY = "confluent:tags"
MAX_FIELDS = 32_767
"""Maximum number of columns of a Parquet file; without it, named types that are reused could grow without bound."""

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_WIDENED = (frozenset({"int", "long"}), frozenset({"float", "double"}))


def read_avro_file(path: str | FilePath) -> Schema:
    """Read an ``.avsc`` file into a schema with its tags.

    Raises:
        PlanError: the file cannot be read, is not JSON, or is not an Avro record.
    """
    try:
        text = FilePath(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PlanError(f"Avro schema {path}: cannot be read ({reason}); give the path of an .avsc file") from error
    return schema_from_avro(text, where=str(path))


def schema_from_avro(
    text: str,
    *,
    where: str = "Avro schema",
    references: Iterable[str] = (),
    tags_of: Callable[[str], Iterable[str]] = lambda name: (),
) -> Schema:
    """Build a schema from the text of an Avro record schema; unions of null and one type are that type.

    Args:
        text: JSON.
        where: the file or property that it came from, for messages.
        references: the texts of schemas whose named types it uses, each after those that it uses itself.
        tags_of: returns the tags that a field has besides its own, by the full name of its record and its name.

    Raises:
        PlanError: not JSON, not a record, an unknown type name, a recursive type, or more than 32,767 columns.
    """
    document, *used = (_parse(part, where) for part in (text, *references))
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise PlanError(f"{where}: the top level is not a record; only a record's fields can be columns")
    tags = tags_from_metadata(document.get(PROPERTY), "(the top level)")
    reader = _Reader(where, tags_of)
    try:
        for part in used:
            reader.define(part)
        fields = reader.record(document, "", ())
    except RecursionError as error:
        raise PlanError(f"{where}: nested too deeply; flatten it") from error
    return Schema(tuple(node if node.tags else replace(node, tags=tags) for node in fields))


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PlanError(f"{where}: not JSON ({reason}); pass the text of an .avsc file") from error


class _Reader:
    """A parser of one Avro document; it records named types, and which of them are open, since they may not nest."""

    def __init__(self, where: str, tags_of: Callable[[str], Iterable[str]]) -> None:
        self._where, self._tags_of = where, tags_of
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}
        self._open: list[str] = []
        self._count = 0

    def define(self, document: Any) -> None:
        """Record the named types of another schema."""
        self._type(Node(VALUE, (VALUE,), "leaf"), document, "", ())

    def record(self, document: Mapping[str, Any], namespace: str, above: Path) -> tuple[Node, ...]:
        """Return the nodes of a record's fields; ``above`` is the path of the field that has this type."""
        full_name, namespace = self._define(document, namespace, above)
        if full_name in self._open:
            raise self._error(
                above,
                f"contains its own type {full_name}; a recursive type has no Parquet columns, so tag the fields above "
                "it or change the schema",
            )
        fields = self._part(document, "fields", above)
        if not isinstance(fields, list):
            raise self._error(above, f"'fields' of record {full_name} is {show(fields)}; allowed: a list of fields")
        self._open.append(full_name)
        nodes = tuple(self._field(field, full_name, namespace, above) for field in fields)
        self._open.pop()
        names = [node.name for node in nodes]
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise self._error((*above, twice), f"is twice in record {full_name}; keep one")
        return nodes

    def _field(self, field: Any, record: str, namespace: str, above: Path) -> Node:
        self._count += 1
        if self._count > MAX_FIELDS:
            raise self._error(above, f"is beyond the {MAX_FIELDS} columns that Parquet allows; use fewer")
        name = field.get("name") if isinstance(field, Mapping) else None
        if not isinstance(name, str) or not name:
            raise self._error(above, f"a field is {show(field)}; allowed: an object with a name and a type")
        path = (*above, name)
        inline = tags_from_metadata(field.get(PROPERTY), shown_path(path))
        tags = tuple(dict.fromkeys((*inline, *self._tags_of(f"{record}.{name}"))))
        return self._type(Node(name, (name,), "leaf", (), tags), self._part(field, "type", path), namespace, path)

    def _type(self, node: Node, declared: Any, namespace: str, path: Path) -> Node:
        """Return a node with the kind, children and further tags of its type; ``path`` is for messages."""
        check_depth(path)
        if isinstance(declared, list):
            return self._union(node, declared, namespace, path)
        if isinstance(declared, str):
            return self._by_name(node, declared, namespace, path)
        if not isinstance(declared, Mapping):
            raise self._error(path, f"has the type {show(declared)}; allowed: a name, an object or a list (a union)")
        own = tags_from_metadata(declared.get(PROPERTY), shown_path(path))
        node = replace(node, tags=tuple(dict.fromkeys((*node.tags, *own))))
        kind = self._part(declared, "type", path)
        if kind in ("record", "error"):
            return replace(node, kind="struct", children=self.record(declared, namespace, path))
        if kind == "array":
            element = Node(ELEMENT, ("list", ELEMENT), "leaf")
            element = self._type(element, self._part(declared, "items", path), namespace, (*path, ELEMENT))
            return replace(node, kind="list", children=(element,))
        if kind == "map":
            key, value = Node(KEY, ("key_value", KEY), "leaf"), Node(VALUE, ("key_value", VALUE), "leaf")
            value = self._type(value, self._part(declared, "values", path), namespace, (*path, VALUE))
            return replace(node, kind="map", children=(key, value))
        if kind in ("enum", "fixed"):
            self._define(declared, namespace, path)
            return node
        return self._type(node, kind, namespace, path)

    def _by_name(self, node: Node, kind: str, namespace: str, path: Path) -> Node:
        if kind in _PRIMITIVES:
            return node
        full_name = kind if "." in kind or not namespace else f"{namespace}.{kind}"
        known = self._named.get(full_name) or self._named.get(kind)
        if known is None:
            raise self._error(path, f"has the type {show(kind)}, which is neither a primitive nor defined before")
        return self._type(node, known[0], known[1], path)

    def _union(self, node: Node, branches: list[Any], namespace: str, path: Path) -> Node:
        """Return the node of a union: null with a type is that type, int with long or float with double the wider one.

        Any other union is a struct ``member0``, ``member1``, … in Spark.
        """
        others = [branch for branch in branches if _name(branch) != "null"]
        if not others:
            return node
        if len(others) == 1:
            if isinstance(others[0], list):
                raise self._error(path, "has a union directly in a union, which Avro does not allow; join them")
            return self._type(node, others[0], namespace, path)
        names = [_name(branch) for branch in others]
        if len(names) == 2 and all(isinstance(name, str) for name in names) and frozenset(names) in _WIDENED:
            own = [self._type(node, branch, namespace, path).tags for branch in others]
            return replace(node, tags=tuple(dict.fromkeys(tag for tags in own for tag in tags)))
        members = tuple(f"member{index}" for index in range(len(others)))
        children = tuple(
            self._type(Node(member, (member,), "leaf"), branch, namespace, (*path, member))
            for member, branch in zip(members, others, strict=True)
        )
        return replace(node, kind="struct", children=children)

    def _define(self, document: Mapping[str, Any], namespace: str, path: Path) -> tuple[str, str]:
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise self._error(path, f"its {document.get('type')} type has no name; Avro requires one")
        if "." in name:
            namespace, full_name = name.rpartition(".")[0], name
        else:
            own = document.get("namespace")
            namespace = own if isinstance(own, str) else namespace
            full_name = f"{namespace}.{name}" if namespace else name
        known = self._named.setdefault(full_name, (document, namespace))
        if known[0] is not document:
            raise self._error(path, f"defines the type {full_name} a second time; name it where it is used again")
        return full_name, namespace

    def _part(self, document: Mapping[str, Any], name: str, path: Path) -> Any:
        if name not in document:
            raise self._error(path, f"{show(dict(document))} has no {name!r}; Avro requires it")
        return document[name]

    def _error(self, path: Path, message: str) -> PlanError:
        return PlanError(f"{self._where}: {f'column {shown_path(path)}' if path else 'the top level'}: {message}")


def _name(branch: Any) -> Any:
    """Return the type name of a union's branch, which is a plain name or an object."""
    return branch.get("type") if isinstance(branch, Mapping) else branch
