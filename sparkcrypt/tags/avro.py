"""Tags in an Avro schema: the field property ``confluent:tags``, at any depth.

Source: the Avro 1.12 specification, "Schema Declaration"; Confluent's inline tags.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import ELEMENT, KEY, VALUE, Node, Schema, dotted, tags_from_metadata
from sparkcrypt.tags.model import TaggedColumn, tags_of_schema

PROPERTY = "confluent:tags"
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})


def read_avro_file(path: str | FilePath) -> Schema:
    """Read an ``.avsc`` file into a schema with its tags.

    Raises:
        PlanError: the file cannot be read, is not JSON, or is not an Avro record.
    """
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"Avro schema {path}: cannot be read ({error.strerror}); give the path of an .avsc file") from error
    return schema_from_avro(text, where=str(path))


def schema_from_avro(text: str, *, where: str = "Avro schema") -> Schema:
    """Build a schema from the text of an Avro record schema; unions of null and one type are that type.

    Raises:
        PlanError: not JSON, not a record, an unknown type name, or a recursive type.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanError(f"{where}: not JSON ({error}); pass the text of an .avsc file") from error
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise PlanError(f"{where}: the top level is not a record; only a record's fields can be columns")
    return Schema(_Reader(where).record(document, "", ()))


def tags_of_avro(schema: Schema) -> tuple[TaggedColumn, ...]:
    """Return the tagged columns of a schema that came from Avro."""
    return tags_of_schema(schema, "avro schema")


class _Reader:
    """Reads one Avro document; it remembers named types and which of them are open, since they may not nest."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}
        self._open: list[str] = []

    def record(self, document: Mapping[str, Any], namespace: str, above: tuple[str, ...]) -> tuple[Node, ...]:
        full_name, namespace = self._define(document, namespace)
        if full_name in self._open:
            raise PlanError(
                f"{self._where}: type {full_name} contains itself at {dotted(above) or 'the top level'}; "
                "a recursive type has no Parquet columns, so tag the fields above it or change the schema"
            )
        self._open.append(full_name)
        nodes = tuple(self._field(field, namespace, above) for field in document.get("fields", ()))
        self._open.pop()
        return nodes

    def _field(self, field: Mapping[str, Any], namespace: str, above: tuple[str, ...]) -> Node:
        name = field["name"]
        path = (*above, name)
        declared = field["type"]
        tags = tags_from_metadata(field.get(PROPERTY), dotted(path))
        if isinstance(declared, Mapping) and PROPERTY in declared:
            tags = (*tags, *tags_from_metadata(declared[PROPERTY], dotted(path)))
        return self.node(name, (name,), declared, namespace, path, tags=tuple(dict.fromkeys(tags)))

    def node(
        self, name: str, parquet: tuple[str, ...], declared: Any, namespace: str, path: tuple[str, ...],
        tags: tuple[str, ...] = (),
    ) -> Node:
        """Return the node of one type; ``path`` is only for messages."""
        if isinstance(declared, list):
            return self._union(name, parquet, declared, namespace, path, tags)
        if isinstance(declared, str):
            return self._by_name(name, parquet, declared, namespace, path, tags)
        kind = declared.get("type")
        if isinstance(kind, list | Mapping):
            return self.node(name, parquet, kind, namespace, path, tags)
        if kind in ("record", "error"):
            return Node(name, parquet, "struct", self.record(declared, namespace, path), tags)
        if kind == "array":
            element = self.node(ELEMENT, ("list", ELEMENT), declared["items"], namespace, (*path, ELEMENT))
            return Node(name, parquet, "list", (element,), tags)
        if kind == "map":
            value = self.node(VALUE, ("key_value", VALUE), declared["values"], namespace, (*path, VALUE))
            return Node(name, parquet, "map", (Node(KEY, ("key_value", KEY), "leaf"), value), tags)
        if kind in _NAMED:
            self._define(declared, namespace)
            return Node(name, parquet, "leaf", (), tags)
        return self._by_name(name, parquet, str(kind), namespace, path, tags)

    def _by_name(
        self, name: str, parquet: tuple[str, ...], kind: str, namespace: str, path: tuple[str, ...],
        tags: tuple[str, ...],
    ) -> Node:
        if kind in _PRIMITIVES:
            return Node(name, parquet, "leaf", (), tags)
        known = self._named.get(kind if "." in kind or not namespace else f"{namespace}.{kind}") or self._named.get(kind)
        if known is None:
            raise PlanError(f"{self._where}: column {dotted(path)} has the type {kind!r}, which is neither a primitive nor defined before")
        return self.node(name, parquet, known[0], known[1], path, tags)

    def _union(
        self, name: str, parquet: tuple[str, ...], branches: list[Any], namespace: str, path: tuple[str, ...],
        tags: tuple[str, ...],
    ) -> Node:
        """A union with null is its other branch; several branches are a struct ``member0``, ``member1``, … in Spark."""
        others = [branch for branch in branches if branch != "null"]
        if not others:
            return Node(name, parquet, "leaf", (), tags)
        if len(others) == 1:
            return self.node(name, parquet, others[0], namespace, path, tags)
        members = (f"member{index}" for index in range(len(others)))
        children = tuple(
            self.node(member, (member,), branch, namespace, (*path, member))
            for member, branch in zip(members, others, strict=True)
        )
        return Node(name, parquet, "struct", children, tags)

    def _define(self, document: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise PlanError(f"{self._where}: a {document.get('type')} has no name; Avro requires one")
        if "." in name:
            namespace = name.rpartition(".")[0]
            full_name = name
        else:
            namespace = document.get("namespace", namespace)
            full_name = f"{namespace}.{name}" if namespace else name
        self._named[full_name] = (document, namespace)
        return full_name, namespace
