"""Takes what may reveal values out of a serialised Arrow schema, in its place.

A message of Arrow's IPC is a FlatBuffer, in which everything is found by offsets: entries that go are overwritten by
zeros, so nothing else moves.  Sources: ``Message.fbs`` and ``Schema.fbs`` of Arrow; "FlatBuffers internals".
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from struct import pack_into, unpack_from
from typing import TypeAlias

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
