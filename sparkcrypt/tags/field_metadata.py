"""The list of what metadata of a field may say beside encrypted data: what is known to reveal no values.

It holds for footers, for the catalog's schema and for what the jar lets a write say.  Libraries attach other metadata:
``ml_attr`` of Spark ML lists every value that a ``StringIndexer`` saw, or holds bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparkcrypt import names
from sparkcrypt.schema import ELEMENT, KEY, VALUE, Path
from sparkcrypt.tags.lineage_note import KEY as LINEAGE
from sparkcrypt.tags.lineage_note import is_lineage


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
