"""Metadata of fields: the lineage of a file's columns, and what else they may say beside encrypted data.

A note in the Spark schema says where a column came from when it was written.  What is known to reveal no values is
listed; the list holds for footers, for the catalog's schema and for what the jar lets a write say.  Libraries attach
other metadata: ``ml_attr`` of Spark ML lists every value that a ``StringIndexer`` saw, or holds bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt import names
from sparkcrypt.errors import PlanError
from sparkcrypt.schema import (
    ELEMENT,
    KEY,
    VALUE,
    ColumnIndex,
    Path,
    join_dotted,
    schema_from_spark,
    tags_from_metadata,
)

LINEAGE = "lineage"
"""The name of the note in a field's metadata; jars/extension/lineage/Lineage.java writes it."""

_SHOWN = 12
"""Number of columns that a message names."""

Origins = tuple[tuple[str, str], ...]
"""Tagged columns: (table, or the folder that was read; dotted path of a leaf).

Notes of earlier releases name a top-level column, with all that is in it.
"""


@dataclass(frozen=True, slots=True)
class PartLineage:
    """The lineage of a part of a nested column: its dotted path below the column, its tags, and its origins."""

    path: str
    tags: tuple[str, ...]
    origins: Origins


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The lineage of one top-level column of a file, from the write that made it.

    Attributes:
        column: its name.
        tags: those that it was written with, without those of fields inside it.
        origins: tagged columns that its values come from, anywhere in it.
        declassified: tagged columns that its values come from without their tags.
        conditions: tagged columns used to choose, join or group the rows of the whole write.
        inherited: tags that the table's column lacked when it was written.
        more: whether there were more columns than are noted.
        parts: its parts whose values come from tagged columns that are not among ``origins``.
    """

    column: str
    tags: tuple[str, ...] = ()
    origins: Origins = ()
    declassified: Origins = ()
    conditions: Origins = ()
    inherited: tuple[str, ...] = ()
    more: bool = False
    parts: tuple[PartLineage, ...] = ()

    @property
    def sources(self) -> Origins:
        """All tagged columns that its values come from, with or without their tags."""
        return (*self.origins, *self.declassified, *(origin for part in self.parts for origin in part.origins))

    @property
    def places(self) -> Iterator[tuple[str, Origins]]:
        """The dotted path of the column, and of each of its parts, with the columns that it has values and tags of."""
        column = join_dotted([self.column])
        yield column, self.origins
        yield from ((f"{column}.{part.path}", part.origins) for part in self.parts)

    def to_list(self) -> list[Any]:
        """Return it as JSON values that `from_list` takes."""
        columns = (self.origins, self.declassified, self.conditions)
        parts = [[part.path, part.tags, part.origins] for part in self.parts]
        return [self.column, self.tags, *columns, self.inherited, self.more, parts]

    @classmethod
    def from_list(cls, values: list[Any]) -> ColumnLineage:
        """Return the lineage whose `to_list` returned these values."""
        column, tags, origins, declassified, conditions, inherited, more, *listed = values
        columns = (_pairs(origins), _pairs(declassified), _pairs(conditions))
        parts = (PartLineage(path, tuple(own), _pairs(made)) for path, own, made in (listed[0] if listed else ()))
        return cls(column, tuple(tags), *columns, tuple(inherited), more, tuple(parts))


def lineage_of_schema(document: str) -> tuple[ColumnLineage, ...]:
    """Return the lineage of the columns of a file, by its Spark schema; a column without a note has none.

    Anyone may have written the file: notes in another form than the extension's are ignored.
    """
    try:
        fields = json.loads(document)["fields"]
        found = (_lineage_of_field(field) for field in fields)
        return tuple(lineage for lineage in found if lineage is not None)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, PlanError):
        return ()


def _lineage_of_field(field: Mapping[str, Any]) -> ColumnLineage | None:
    metadata = field.get("metadata") or {}
    note = metadata.get(LINEAGE)
    if not isinstance(note, dict) or not is_lineage(note) or not isinstance(field["name"], str):
        return None
    tags = _tags_by_path(field) if "into" in note else {}
    return ColumnLineage(
        column=field["name"],
        tags=tags_from_metadata(metadata.get("tags"), field["name"]),
        origins=_origins(note.get("from", {})),
        declassified=_origins(note.get("declassified", {})),
        conditions=_origins(note.get("conditions", {})),
        inherited=tuple(note.get("inherited", ())),
        more=note.get("more", False),
        parts=tuple(PartLineage(path, tags.get(path, ()), _origins(of)) for path, of in note.get("into", {}).items()),
    )


def _tags_by_path(field: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the dotted path below a column to each field -> its tags, with those of what it is in."""
    schema = schema_from_spark({"type": "struct", "fields": [field]})
    found: dict[str, tuple[str, ...]] = {}
    for _, chain in schema.walk_leaves():
        tags: dict[str, None] = {}
        for _, path, node in chain:
            tags |= dict.fromkeys(node.tags)
            found[join_dotted(path[1:])] = tuple(tags)
    return found


def walk_above(path: str) -> Iterator[str]:
    """Yield what a dotted path is below in the sense of `is_below`, in lower case: itself first."""
    above = path.lower()
    while True:
        yield above
        if "." not in above:
            return
        above = above.rpartition(".")[0]


def is_below(path: str, other: str) -> bool:
    """Return whether a dotted path is another one, or below it, in any case."""
    return f"{path}.".lower().startswith(f"{other}.".lower())


def _pairs(values: Iterable[tuple[str, str]]) -> Origins:
    return tuple((table, column) for table, column in values)


def _origins(part: Mapping[str, list[str]]) -> Origins:
    return tuple((table, column) for table, columns in part.items() for column in columns)


def is_lineage(note: object) -> bool:
    """Return whether a value of a field's metadata is a note of its lineage."""
    return isinstance(note, dict) and all(name in _PARTS and _PARTS[name](value) for name, value in note.items())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_columns(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_texts, value.values()))


_PARTS: dict[str, Callable[[object], bool]] = {
    "from": _is_columns,
    "declassified": _is_columns,
    "conditions": _is_columns,
    "into": lambda value: isinstance(value, dict) and all(map(_is_columns, value.values())),
    "inherited": _is_texts,
    "more": lambda value: isinstance(value, bool),
}


def known_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that reveal no values."""
    return {name: value for name, value in metadata.items() if name in _KNOWN and _KNOWN[name](value)}


def unknown_metadata(metadata: Mapping[str, Any]) -> list[str]:
    """Return the names of entries that may reveal values and that nobody expects to be left out.

    Defaults are values too, but Spark copies them from a table's columns to every query, and reads them of the
    catalog alone; so they, and the marks of Spark, Delta and the JDBC source, are left out unasked.
    """
    known = known_metadata(metadata)
    return [name for name in metadata if name not in known and not _is_left_out(name)]


def add_tags(document: str, tags_by_path: Mapping[Path, Iterable[str]]) -> str:
    """Return a Spark schema in JSON with further tags in the metadata of its fields; tags that are there stay.

    Elements, keys and values have no metadata, nor has what is in a user-defined type: their tags are put on the field
    that they are in.

    Raises:
        PlanError: the schema has no such column, or several that differ only by case.
    """
    index, schema = ColumnIndex(schema_from_spark(document)), json.loads(document)
    fields_by_path = dict(_walk_own_fields(schema, ()))
    for wanted, tags in tags_by_path.items():
        found = index.find(wanted)
        if len(found) != 1:
            names_of = [join_dotted(path) for path in found or fields_by_path]
            why = "is the name of several columns" if found else "is not a column"
            raise PlanError(f"{join_dotted(wanted)!r} {why}; allowed: {', '.join(names_of[:_SHOWN])}")
        path = found[0]
        while path not in fields_by_path:
            path = path[:-1]
        metadata = fields_by_path[path].setdefault("metadata", {})
        before = tags_from_metadata(metadata.get("tags"), join_dotted(path))
        metadata["tags"] = list(dict.fromkeys((*before, *tags)))
    return json.dumps(schema)


def _walk_own_fields(kind: Any, above: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the logical path of each field of a type, and the field itself."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            path = (*above, field["name"])
            yield path, field
            yield from _walk_own_fields(field["type"], path)
        for key, name in _INNER.items():
            yield from _walk_own_fields(kind.get(key), (*above, name))


def walk_fields(kind: Any, above: Path = ()) -> Iterator[tuple[Path, Any, Mapping[str, Any]]]:
    """Yield the logical path, the type and the metadata of each field of a type in Spark's schema JSON.

    Elements, keys and values have no metadata.
    """
    while isinstance(kind, Mapping) and kind.get("type") == "udt":
        kind = kind["sqlType"]
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield from _walk(field["type"], (*above, field["name"]), field.get("metadata") or {})
        for key, name in _INNER.items():
            if key in kind:
                yield from _walk(kind[key], (*above, name), {})


def _walk(kind: Any, path: Path, metadata: Mapping[str, Any]) -> Iterator[tuple[Path, Any, Mapping[str, Any]]]:
    yield path, kind, metadata
    yield from walk_fields(kind, path)


def _is_left_out(name: str) -> bool:
    return name.startswith(("__", "delta.", "spark.")) or name in _LEFT_OUT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_tags(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, list) and all(map(_is_text, value)))


def _is_collations(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_INNER = {"elementType": ELEMENT, "keyType": KEY, "valueType": VALUE}

_KNOWN: dict[str, Callable[[Any], bool]] = {
    "comment": _is_text,
    "tags": _is_tags,
    "parquet.field.id": lambda value: type(value) is int,
    "__CHAR_VARCHAR_TYPE_STRING": _is_text,
    "__COLLATIONS": _is_collations,
    "HIVE_TYPE_STRING": _is_text,
    names.MASKED: _is_text,
    LINEAGE: is_lineage,
}

_LEFT_OUT = frozenset(
    {
        "CURRENT_DEFAULT",
        "EXISTS_DEFAULT",
        "isSigned",
        "isTimestampNTZ",
        "jdbcClientType",
        "logical_time_type",
        "scale",
    }
)
