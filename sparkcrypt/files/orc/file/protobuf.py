"""Decodes Protocol Buffers' wire format into generic messages that keep every field, and encodes them.

Layout: "Encoding", protobuf.dev/programming-guides/encoding.

A message is a list of ``(key, value)`` in wire order, where the key is ``field number << 3 | wire type``; nested
messages stay bytes until they are accessed.  Input is untrusted: every length is checked against the remaining bytes,
the number of fields is bounded, and every error is a `FormatError` that names the place and what was expected there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeAlias

from sparkcrypt.errors import FormatError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 400_000
"""The most fields of one message unless the caller sets another limit; each takes at most some 150 bytes of memory."""

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_MAX_NUMBER = (1 << 29) - 1
_VARINT_BITS = 64

Value: TypeAlias = int | bytes
Field: TypeAlias = tuple[int, Value]


class Message:
    """A message: its fields in wire order, and its name for error messages."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Iterable[Field] = ()) -> None:
        self.name = name
        self.fields: list[Field] = list(fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.fields == other.fields

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"Message({self.name!r}, {len(self.fields)} fields)"

    def has(self, number: int) -> bool:
        """Return whether the message has a field of that number."""
        return any(key >> 3 == number for key, _ in self.fields)

    def integer(self, number: int, default: int = 0, *, bits: int = 64) -> int:
        """Return an unsigned integer, or the default if it is missing.

        Raises:
            FormatError: it occurs twice, has another type, or has more bits.
        """
        value = self._find_single(number, VARINT)
        if value is None:
            return default
        if not isinstance(value, int) or value >> bits:
            self._fail(number, f"is {value!r}", f"at most {bits} bits")
        return value

    def data(self, number: int) -> bytes | None:
        """Return bytes, or None if they are missing.

        Raises:
            FormatError: the field occurs twice, or has another type.
        """
        value = self._find_single(number, BYTES)
        return value if isinstance(value, bytes) else None

    def text(self, number: int) -> str | None:
        """Return a text, or None if it is missing.

        Raises:
            FormatError: as `data`, or it is not UTF-8.
        """
        value = self.data(number)
        return None if value is None else self._decode_text(number, value)

    def texts(self, number: int) -> list[str]:
        """Return the texts of a repeated field.

        Raises:
            FormatError: one is of another type or not UTF-8.
        """
        return [self._decode_text(number, value) for value in self.read_repeated(number)]

    def message(self, number: int, name: str) -> Message | None:
        """Return a nested message, or None if it is missing.

        Raises:
            FormatError: as `data`, or it is not a message.
        """
        value = self.data(number)
        return None if value is None else decode(value, name)

    def read_repeated(self, number: int) -> list[bytes]:
        """Return the bytes of a repeated field.

        Raises:
            FormatError: one is of another type.
        """
        found = []
        for key, value in self.fields:
            if key >> 3 == number:
                if not isinstance(value, bytes) or key & 7 != BYTES:
                    self._fail(number, f"has wire type {key & 7}", f"wire type {BYTES}")
                found.append(value)
        return found

    def messages(self, number: int, name: str) -> list[Message]:
        """Return the messages of a repeated field.

        Raises:
            FormatError: as `read_repeated`, or one is not a message.
        """
        return [decode(value, name) for value in self.read_repeated(number)]

    def integers(self, number: int, *, bits: int = 32) -> list[int]:
        """Return the integers of a repeated field, packed or not.

        Raises:
            FormatError: one is of another type, or has more bits.
        """
        found: list[int] = []
        for key, value in self.fields:
            if key >> 3 != number:
                continue
            if isinstance(value, int):
                found.append(value)
            elif key & 7 == BYTES:
                found.extend(_unpack_varints(value, f"{self.name}, field {number}"))
            else:
                self._fail(number, f"has wire type {key & 7}", f"wire type {VARINT} or {BYTES}")
        if any(value >> bits for value in found):
            self._fail(number, "holds a larger integer", f"at most {bits} bits")
        return found

    def replace_field(self, number: int, values: Sequence[Value]) -> Message:
        """Return a copy in which a field has these values, at its first position, or at the end if it was missing."""
        wire = BYTES if values and isinstance(values[0], bytes) else VARINT
        new: list[Field] = [(number << 3 | wire, value) for value in values]
        fields: list[Field] = []
        placed = False
        for field in self.fields:
            if field[0] >> 3 != number:
                fields.append(field)
            elif not placed:
                fields += new
                placed = True
        return Message(self.name, fields if placed else fields + new)

    def encode(self) -> bytes:
        """Return the message as bytes: those that it was decoded from, unless varints were longer than needed."""
        out = bytearray()
        for key, value in self.fields:
            _put_varint(out, key)
            if isinstance(value, int):
                _put_varint(out, value)
            else:
                if key & 7 == BYTES:
                    _put_varint(out, len(value))
                out += value
        return bytes(out)

    def _find_single(self, number: int, wire: int) -> Value | None:
        found: Value | None = None
        for key, value in self.fields:
            if key >> 3 == number:
                if found is not None:
                    self._fail(number, "stands twice", "it once, since readers differ in which they take")
                if key & 7 != wire:
                    self._fail(number, f"has wire type {key & 7}", f"wire type {wire}")
                found = value
        return found

    def _decode_text(self, number: int, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            self._fail(number, "is not UTF-8", "text")

    def _fail(self, number: int, found: str, expected: str) -> NoReturn:
        raise FormatError(f"{self.name}: field {number} {found}; expected {expected}")


def message(name: str, *fields: tuple[int, Value | None]) -> Message:
    """Return a new message of (field number, value); fields that are None are left out."""
    return Message(
        name,
        [
            (number << 3 | (BYTES if isinstance(value, bytes) else VARINT), value)
            for number, value in fields
            if value is not None
        ],
    )


def decode(data: bytes, name: str, *, max_fields: int = MAX_FIELDS) -> Message:
    """Decode a message that consists of all the bytes.

    Raises:
        FormatError: they are not a message, or it has more fields than ``max_fields``.
    """
    fields: list[Field] = []
    position, size = 0, len(data)
    while position < size:
        if len(fields) == max_fields:
            raise FormatError(f"{name}: too many fields; expected at most {max_fields}")
        key, position = _varint(data, position, name)
        wire, number = key & 7, key >> 3
        if not 0 < number <= _MAX_NUMBER:
            raise FormatError(f"{name}: field number {number}; expected 1 to {_MAX_NUMBER}")
        value: Value
        if wire == VARINT:
            value, position = _varint(data, position, name)
        else:
            if wire == BYTES:
                length, position = _varint(data, position, name)
            elif wire in _FIXED_BYTES:
                length = _FIXED_BYTES[wire]
            else:
                raise FormatError(f"{name}: field {number} has wire type {wire}; expected 0, 1, 2 or 5")
            value = data[position : position + length]
            if len(value) != length:
                raise FormatError(
                    f"{name}: field {number} is said to be {length} bytes; expected at most the {size - position} left"
                )
            position += length
        fields.append((key, value))
    return Message(name, fields)


def encode_packed(values: Iterable[int]) -> bytes:
    """Return unsigned integers as the bytes of a packed field."""
    out = bytearray()
    for value in values:
        _put_varint(out, value)
    return bytes(out)


def _unpack_varints(data: bytes, name: str) -> list[int]:
    values, position = [], 0
    while position < len(data):
        value, position = _varint(data, position, name)
        values.append(value)
    return values


def _varint(data: bytes, position: int, name: str) -> tuple[int, int]:
    result = shift = 0
    try:
        while (byte := data[position]) > 127 and shift < _VARINT_BITS:
            result |= (byte & 127) << shift
            shift += 7
            position += 1
    except IndexError as error:
        raise FormatError(f"{name}: ends inside a varint; expected more of it") from error
    result |= byte << shift
    if result >> _VARINT_BITS:
        raise FormatError(f"{name}: a varint is too large; expected at most {_VARINT_BITS} bits")
    return result, position + 1


def _put_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
