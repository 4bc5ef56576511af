"""Reduces schemas that footers store as JSON to parts that are known to reveal no values.

Spark writes all metadata that users and libraries attached to fields.  Only what ``tags/field_metadata.py`` lists is
kept, at every field: what tells of the values of one may stand at another, which need not be encrypted itself.

Schemas of Avro and Iceberg lose docs, defaults and other properties, an enum of Avro becomes a string, and what pandas
keeps loses ranges of the index, counts of categories and attributes.
Sources: ``DataType.json`` of Spark; the specifications of Avro and Iceberg ("Schemas"); "pandas metadata" of pandas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.tags.field_metadata import known_metadata


def redact_schema(name: str, text: str) -> tuple[str | None, bool]:
    """Return what stays of an entry of key-value metadata, None if unreadable; and whether anything was removed.

    Args:
        name: one of ``SCHEMAS``.
        text: the entry's value.
    """
    try:
        found = json.loads(text)
        kept = SCHEMAS[name](found)
        made = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
        made.encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, True
    return made, kept != found


def _type(found: Any) -> Any:
    """Return a type rebuilt from its known parts.

    Raises:
        ValueError: it is not a type of Spark.
        KeyError: it is not a type of Spark.
    """
    if isinstance(found, str):
        return found
    kind = _check_kind(found, dict)["type"]
    if kind == "struct":
        return {"type": kind, "fields": [_field(field) for field in _check_kind(found["fields"], list)]}
    inner, plain = _INNER[kind]
    kept: dict[str, Any] = {"type": kind}
    for name, value in found.items():
        if name in inner:
            kept[name] = _type(value)
        elif name in plain and isinstance(value, (str, bool)):
            kept[name] = value
    return kept


def _field(field: Any) -> dict[str, Any]:
    metadata = _check_kind(_check_kind(field, dict).get("metadata", {}), dict)
    return {
        "name": _check_kind(field["name"], str),
        "type": _type(field["type"]),
        "nullable": _check_kind(field["nullable"], bool),
        "metadata": known_metadata(metadata),
    }


def _check_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError("not a field of Spark")
    return value


def _rebuild_avro(found: Any) -> Any:
    """Return an Avro schema rebuilt from its known parts, with strings for enums and for what names one."""
    enums: set[str] = set()
    kept = _rebuild_avro_type(_check_kind(found, dict), enums)
    return _replace_enums(kept, enums) if enums else kept


def _rebuild_avro_type(found: Any, enums: set[str]) -> Any:
    if isinstance(found, str):
        return found
    if isinstance(found, list):
        return [_rebuild_avro_type(branch, enums) for branch in found]
    kind = _check_kind(found, dict)["type"]
    if kind == "enum":
        name, space = _check_kind(found["name"], str), found.get("namespace")
        enums.update((name, name.rpartition(".")[2], f"{space}.{name}"))
        return "string"
    kept = _select(found, _AVRO_KEPT)
    kept["type"] = _rebuild_avro_type(kind, enums)
    for inner in ("items", "values"):
        if inner in found:
            kept[inner] = _rebuild_avro_type(found[inner], enums)
    if "fields" in found:
        fields = [_check_kind(field, dict) for field in _check_kind(found["fields"], list)]
        kept["fields"] = [
            {"name": _check_kind(field["name"], str), "type": _rebuild_avro_type(field["type"], enums)}
            for field in fields
        ]
    return kept


def _replace_enums(kept: Any, enums: set[str]) -> Any:
    if isinstance(kept, str):
        return "string" if kept in enums or kept.rpartition(".")[2] in enums else kept
    if isinstance(kept, list):
        branches = [_replace_enums(branch, enums) for branch in kept]
        return [branch for place, branch in enumerate(branches) if branch not in branches[:place]]
    for inner in ("type", "items", "values"):
        if inner in kept:
            kept[inner] = _replace_enums(kept[inner], enums)
    for field in kept.get("fields", ()):
        field["type"] = _replace_enums(field["type"], enums)
    return kept


def _rebuild_iceberg(found: Any) -> Any:
    if isinstance(found, str):
        return found
    kept = _select(_check_kind(found, dict), _ICEBERG_KEPT)
    kept["type"] = _check_kind(found["type"], str)
    for inner in ("element", "key", "value"):
        if inner in found:
            kept[inner] = _rebuild_iceberg(found[inner])
    if "fields" in found:
        fields = [_check_kind(field, dict) for field in _check_kind(found["fields"], list)]
        kept["fields"] = [
            {**_select(field, ("id", "name", "required")), "type": _rebuild_iceberg(field["type"])} for field in fields
        ]
    return kept


def _rebuild_pandas(found: Any) -> Any:
    kept: dict[str, Any] = _select(_check_kind(found, dict), ("pandas_version",))
    kept["index_columns"] = [name for name in found.get("index_columns", ()) if isinstance(name, str)]
    for inner in ("column_indexes", "columns"):
        kept[inner] = [
            _rebuild_pandas_column(_check_kind(column, dict)) for column in _check_kind(found.get(inner, []), list)
        ]
    kept["creator"] = _select(_check_kind(found.get("creator", {}), dict), ("library", "version"))
    return kept


def _rebuild_pandas_column(found: dict[str, Any]) -> dict[str, Any]:
    kept = _select(found, ("name", "field_name", "pandas_type", "numpy_type"))
    metadata = _select(found.get("metadata") or {}, ("encoding", "timezone", "precision", "scale", "ordered"))
    return {"name": None, **kept, "metadata": metadata or None}


def _select(found: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the entries of these names whose values are texts, numbers, flags or lists of numbers."""
    return {name: found[name] for name in names if name in found and _is_plain(found[name])}


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int)) or (isinstance(value, list) and all(type(entry) is int for entry in value))


_AVRO_KEPT = ("name", "namespace", "size", "logicalType", "precision", "scale")
_ICEBERG_KEPT = (
    "schema-id",
    "identifier-field-ids",
    "element-id",
    "element-required",
    "key-id",
    "value-id",
    "value-required",
)

_INNER = {
    "array": (("elementType",), ("containsNull",)),
    "map": (("keyType", "valueType"), ("valueContainsNull",)),
    "udt": (("sqlType",), ("class", "pyClass", "serializedClass")),
}
"""Nested type, except structs -> the keys of its inner types, and the keys of its texts and flags."""

SCHEMAS: dict[str, Callable[[Any], Any]] = {
    SPARK_SCHEMA: _type,
    "avro.schema": _rebuild_avro,
    "parquet.avro.schema": _rebuild_avro,
    "iceberg.schema": _rebuild_iceberg,
    "pandas": _rebuild_pandas,
}
"""Entries of key-value metadata that are schemas as JSON -> what returns the known parts of one."""
