"""Reduces the Spark schema that footers store as JSON to parts that are known to reveal no values.

Spark writes all metadata that users and libraries attached to fields: ``ml_attr`` of Spark ML lists every value that a
``StringIndexer`` saw, or holds bounds, also at the *indexed* field, which need not be encrypted itself.  So metadata of
fields is removed, except what Spark needs to read a type, comments, tags, and the field's lineage (its source columns
and tables).  Defaults are removed: they are values.
Source: ``DataType.json`` of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sparkcrypt.tags.lineage_note import KEY as LINEAGE
from sparkcrypt.tags.lineage_note import is_lineage


def redact_spark_schema(text: str) -> tuple[str | None, bool]:
    """Return the schema with only known metadata of fields, None if unreadable; and whether anything was removed."""
    try:
        found = json.loads(text)
        kept = _type(found)
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
        "metadata": {name: value for name, value in metadata.items() if name in _KNOWN and _KNOWN[name](value)},
    }


def _check_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError("not a field of Spark")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_tags(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, list) and all(map(_is_text, value)))


def _is_collations(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_INNER = {
    "array": (("elementType",), ("containsNull",)),
    "map": (("keyType", "valueType"), ("valueContainsNull",)),
    "udt": (("sqlType",), ("class", "pyClass", "serializedClass")),
}
"""Nested type, except structs -> the keys of its inner types, and the keys of its texts and flags."""

_KNOWN: dict[str, Callable[[Any], bool]] = {
    "comment": _is_text,
    "tags": _is_tags,
    "parquet.field.id": lambda value: type(value) is int,
    "__CHAR_VARCHAR_TYPE_STRING": _is_text,
    "__COLLATIONS": _is_collations,
    "HIVE_TYPE_STRING": _is_text,
    LINEAGE: is_lineage,
}
