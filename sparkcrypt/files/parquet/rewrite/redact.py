"""Leaves out of a plaintext footer what tells of encrypted columns: in the schemas of other writers, and in Arrow's.

Reduces schemas that footers store as JSON to parts that are known to reveal no values.  Spark writes all metadata that
users and libraries attached to fields.  Only what ``tags/field_metadata.py`` lists is kept, at every field: what tells
of the values of one may stand at another, which need not be encrypted itself.

Schemas of Avro and Iceberg lose docs, defaults and other properties, an enum of Avro becomes a string, and what pandas
keeps loses ranges of the index, counts of categories and attributes.
Sources: ``DataType.json`` of Spark; the specifications of Avro and Iceberg ("Schemas"); "pandas metadata" of pandas.

Takes what may reveal values out of a serialised Arrow schema, in its place.  A message of Arrow's IPC is a FlatBuffer,
in which everything is found by offsets: entries that go are overwritten by zeros, so nothing else moves.  Sources:
``Message.fbs`` and ``Schema.fbs`` of Arrow; "FlatBuffers internals".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from struct import error as StructError
from struct import pack_into, unpack_from
from typing import Any, TypeAlias

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


_CONTINUATION = b"\xff\xff\xff\xff"
_HEADER = 2
"""The field of a message that has the schema, and the fields of a schema and of a field in it:"""
_FIELDS, _SCHEMA_METADATA = 1, 2
_CHILDREN, _FIELD_METADATA = 5, 6
_OF_TYPES = ("PARQUET:field_id", "ARROW:extension:name", "ARROW:extension:metadata")
"""Metadata of fields by which Arrow knows their types."""

Redact: TypeAlias = Callable[[str, str], "str | None"]
"""Called with an entry of the schema's own metadata; returns its new value, None if it goes."""


def redact_arrow_schema(message: bytes, redact: Redact) -> bytes | None:
    """Return a schema without metadata of fields, except what their types need; None if it cannot be followed."""
    try:
        return _Message(message, redact).run()
    except (StructError, IndexError, ValueError, RecursionError):
        return None


class _Message:
    def __init__(self, message: bytes, redact: Redact) -> None:
        self._data, self._redact = bytearray(message), redact
        self._seen: set[int] = set()
        self._unread = len(message)

    def run(self) -> bytes:
        root = 8 if self._data[:4] == _CONTINUATION else 4
        schema = self._follow(self._field(self._follow(root), _HEADER))
        for field in self._vector(self._field(schema, _FIELDS)):
            self._redact_field(self._follow(field))
        self._redact_entries(self._field(schema, _SCHEMA_METADATA), self._redact)
        return bytes(self._data)

    def _redact_field(self, field: int) -> None:
        if field in self._seen:
            raise ValueError("a field is in two places")
        self._seen.add(field)
        self._redact_entries(
            self._field(field, _FIELD_METADATA), lambda key, value: value if key in _OF_TYPES else None
        )
        for child in self._vector(self._field(field, _CHILDREN)):
            self._redact_field(self._follow(child))

    def _redact_entries(self, place: int | None, redact: Redact) -> None:
        kept = []
        slots = self._vector(place)
        for slot in slots:
            entry = self._follow(slot)
            key, value = (self._text(self._field(entry, number)) for number in (0, 1))
            found = redact(self._read(key), self._read(value))
            if found is not None and self._write(value, found.encode()):
                kept.append(entry)
                continue
            for text in (key, value):
                self._write(text, b"")
        for slot, entry in zip(slots, kept, strict=False):
            pack_into("<I", self._data, slot, entry - slot)
        if place is not None:
            pack_into("<I", self._data, self._follow(place), len(kept))

    def _unpack(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("an offset leads out of the message")
        return int(unpack_from(form, self._data, at)[0])

    def _follow(self, at: int | None) -> int:
        if at is None:
            raise ValueError("a part is missing")
        return at + self._unpack("<I", at)

    def _field(self, table: int, number: int) -> int | None:
        """Return the place of a field of a table; None if it is not set."""
        layout = table - self._unpack("<i", table)
        at = 4 + 2 * number
        offset = self._unpack("<H", layout + at) if at < self._unpack("<H", layout) else 0
        return table + offset if offset else None

    def _vector(self, place: int | None) -> range:
        """Return the places of a vector's elements, which are offsets."""
        if place is None:
            return range(0)
        start = self._follow(place)
        count = self._unpack("<I", start)
        if count * 4 > len(self._data):
            raise ValueError("a vector leads out of the message")
        return range(start + 4, start + 4 + 4 * count, 4)

    def _text(self, place: int | None) -> int | None:
        return None if place is None else self._follow(place)

    def _read(self, text: int | None) -> str:
        if text is None:
            return ""
        length = self._unpack("<I", text)
        self._unread -= length  # no part is in two texts
        if text + 4 + length > len(self._data) or self._unread < 0:
            raise ValueError("a text leads out of the message, or is in another")
        return self._data[text + 4 : text + 4 + length].decode()

    def _write(self, text: int | None, value: bytes) -> bool:
        """Overwrite a text; return whether the new one fits in its place."""
        length = 0 if text is None else self._unpack("<I", text)
        if len(value) > length:
            return False
        if text is not None:
            pack_into("<I", self._data, text, len(value))
            self._data[text + 4 : text + 4 + length] = value.ljust(length, b"\0")
        return True
