"""Decodes Thrift's compact protocol into generic structs that keep every field (`encode` writes them back).

Layout of the wire format: "Thrift Compact protocol encoding" (apache/thrift, doc/specs/thrift-compact-protocol.md).

A decoded struct is a dictionary, in wire order, from ``field_key(field id, type)`` to value, so that a field of another
type than expected is an unknown field, as it is for generated Thrift code.  Booleans are ``bool``, integers ``int``,
strings and binaries ``bytes``; doubles and UUIDs stay their raw 8 and 16 bytes.  Input is untrusted: every length and
count is checked against the remaining bytes before anything is allocated, nesting and the number of values are
bounded, and every error is a `FormatError` that names the offset and what was expected there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeAlias, Union

from sparkcrypt.errors import FormatError

BOOL, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
"""Types of the compact protocol.  A field of either boolean type has the key of ``BOOL``."""

MAX_DEPTH = 64
MAX_VALUES = 4_000_000
"""The most values in one decoded struct unless the caller sets another limit; each takes at most some 100 bytes."""

_MAX_FIELD_ID = 0x7FFF
FIXED_BYTES = {DOUBLE: 8, UUID: 16}
_BITS = {I16: 16, I32: 32, I64: 64}

Value: TypeAlias = Union[bool, int, bytes, "Struct", "List", "Map"]


class Struct(dict[int, Value]):
    """A struct: `field_key` -> value, in wire order."""

    __slots__ = ()


class List(list[Value]):
    """A list or a set, and the type that its header gives to its elements."""

    __slots__ = ("element",)

    def __init__(self, element: int, values: Iterable[Value] = ()) -> None:
        self.element = element
        self.extend(values)


class Map(list[tuple[Value, Value]]):
    """A map as pairs in wire order, and the types of its keys and values (both 0 if it is empty)."""

    __slots__ = ("key", "value")

    def __init__(self, key: int, value: int, pairs: Iterable[tuple[Value, Value]] = ()) -> None:
        super().__init__(pairs)
        self.key = key
        self.value = value


def field_key(field_id: int, kind: int) -> int:
    """Return the key under which a `Struct` stores the field of that id and type."""
    return field_id << 4 | kind


def decode_struct(data: bytes, *, start: int = 0, origin: int = 0, max_values: int | None = None) -> tuple[Struct, int]:
    """Decode one struct.

    Args:
        data: the bytes; bytes after the struct are ignored.
        start: the index in ``data`` of the struct.
        origin: added to an index in ``data`` to give an offset in messages.
        max_values: the most values that it may have; `MAX_VALUES` if None.

    Returns:
        The struct and the index of the first byte after it.

    Raises:
        FormatError: the bytes are not such a struct, or it nests deeper or holds more than the limits of this module.
    """
    reader = _Reader(data, origin, MAX_VALUES if max_values is None else max_values)
    try:
        return reader.struct(start, MAX_DEPTH)
    except IndexError as error:
        raise FormatError(
            f"offset {origin + len(data)}: the bytes end inside a Thrift struct; expected more of it"
        ) from error


def has_run_out(error: FormatError) -> bool:
    """Return whether `decode_struct` failed because its bytes ended, so that it may succeed with more bytes."""
    return isinstance(error.__cause__, IndexError)


class _Reader:
    """The bytes of one decoding, and the number of values that are still allowed.

    Each reading method takes a position and the number of levels that may still be nested, and returns a value and the
    position after it.
    """

    __slots__ = ("data", "max_values", "origin", "values_left")

    def __init__(self, data: bytes, origin: int, max_values: int) -> None:
        self.data = data
        self.origin = origin
        self.max_values = self.values_left = max_values

    def struct(self, position: int, depth: int) -> tuple[Struct, int]:  # noqa: C901 - a call per field costs twice
        data, inner = self.data, depth - 1
        if inner < 0:
            self.refuse_depth(position)
        fields = Struct()
        field_id = count = 0
        while header := data[position]:
            kind = header & 15
            position += 1
            if header > 15:
                field_id += header >> 4
            else:
                self.in_range(position, field_id)
                field_id, position = self.integer(position, 16)
            if 3 < kind < 7:
                byte = data[position]
                if byte < 128:
                    fields[field_id << 4 | kind] = byte >> 1 ^ -(byte & 1)
                    position += 1
                elif (second := data[position + 1]) < 128:
                    byte = byte & 127 | second << 7
                    fields[field_id << 4 | kind] = byte >> 1 ^ -(byte & 1)
                    position += 2
                elif (third := data[position + 2]) < 4:
                    byte = byte & 127 | (second & 127) << 7 | third << 14
                    fields[field_id << 4 | kind] = byte >> 1 ^ -(byte & 1)
                    position += 3
                elif kind != I16 and third > 127 and (fourth := data[position + 3]) < 128:  # offsets in files
                    byte = byte & 127 | (second & 127) << 7 | (third & 127) << 14 | fourth << 21
                    fields[field_id << 4 | kind] = byte >> 1 ^ -(byte & 1)
                    position += 4
                else:
                    raw, position = self.varint(position, _BITS[kind])
                    fields[field_id << 4 | kind] = raw >> 1 ^ -(raw & 1)
            elif kind == BINARY and (size := data[position]) < 128:
                position += 1 + size
                fields[field_id << 4 | BINARY] = value = data[position - size : position]
                if len(value) != size:
                    self.raw(position - size, size)
            elif kind == LIST:
                fields[field_id << 4 | LIST], position = self.sequence(position, inner)
            elif kind == FALSE:
                fields[field_id << 4 | BOOL] = False
            else:
                fields[field_id << 4 | kind], position = _FIELD_READERS[kind](self, position, inner)
            count += 1
        if field_id > _MAX_FIELD_ID:
            self.in_range(position, field_id)
        if len(fields) != count:
            self.fail(position, "a struct that ends here has a field twice", "each field once")
        self.values_left -= count + 1
        if self.values_left < 0:
            self.refuse_number(position)
        return fields, position + 1

    def in_range(self, position: int, field_id: int) -> None:
        if field_id > _MAX_FIELD_ID:
            self.fail(position, f"field id {field_id}", f"at most {_MAX_FIELD_ID}")

    def sequence(self, position: int, depth: int) -> tuple[List, int]:
        inner = depth - 1
        if inner < 0:
            self.refuse_depth(position)
        header = self.data[position]
        kind, count = header & 15, header >> 4
        position += 1
        if count == 15:
            count, position = self.varint(position, 32)
        if count > self.values_left or count > len(self.data) - position or kind in FIXED_BYTES:
            self.announce(position, count, FIXED_BYTES.get(kind, 1))
        else:
            self.values_left -= count
        values = List(kind)
        if kind == BINARY:
            return values, self.binaries(values, position, count)
        read = _ELEMENT_READERS[kind]
        for _ in range(count):
            value, position = read(self, position, inner)
            values.append(value)
        return values, position

    def binaries(self, values: List, position: int, count: int) -> int:
        data, append = self.data, values.append
        for _ in range(count):
            size = data[position]
            position += 1
            if size > 127:
                size, position = self.varint(position - 1, 32)
            value = data[position : position + size]
            if len(value) != size:
                self.raw(position, size)
            append(value)
            position += size
        return position

    def mapping(self, position: int, depth: int) -> tuple[Map, int]:
        inner = self.descend(position, depth)
        count, position = self.varint(position, 32)
        if not count:
            return Map(0, 0), position
        kinds = self.data[position]
        values = Map(kinds >> 4, kinds & 15)
        position += 1
        self.announce(position, 2 * count, 1)
        read_key, read_value = _ELEMENT_READERS[values.key], _ELEMENT_READERS[values.value]
        for _ in range(count):
            key, position = read_key(self, position, inner)
            value, position = read_value(self, position, inner)
            values.append((key, value))
        return values, position

    def binary(self, position: int, _depth: int) -> tuple[bytes, int]:
        size = self.data[position]
        if size < 128:
            position += 1
        else:
            size, position = self.varint(position, 32)
        return self.raw(position, size)

    def double(self, position: int, _depth: int) -> tuple[bytes, int]:
        return self.raw(position, 8)

    def uuid(self, position: int, _depth: int) -> tuple[bytes, int]:
        return self.raw(position, 16)

    def byte(self, position: int, _depth: int) -> tuple[int, int]:
        return (self.data[position] ^ 128) - 128, position + 1

    def i16(self, position: int, _depth: int) -> tuple[int, int]:
        return self.integer(position, 16)

    def i32(self, position: int, _depth: int) -> tuple[int, int]:
        byte = self.data[position]
        return (byte >> 1 ^ -(byte & 1), position + 1) if byte < 128 else self.integer(position, 32)

    def i64(self, position: int, _depth: int) -> tuple[int, int]:
        byte = self.data[position]
        return (byte >> 1 ^ -(byte & 1), position + 1) if byte < 128 else self.integer(position, 64)

    def true(self, position: int, _depth: int) -> tuple[bool, int]:
        return True, position

    def boolean(self, position: int, _depth: int) -> tuple[bool, int]:
        byte = self.data[position]
        if byte > 2:
            self.fail(position, f"boolean {byte}", "1 for true, 2 or 0 for false")
        return byte == 1, position + 1

    def raw(self, position: int, size: int) -> tuple[bytes, int]:
        end = position + size
        value = self.data[position:end]
        if len(value) != size:
            self.end(position, f"{size} bytes are announced", f"at most the {len(value)} that are left")
        return value, end

    def integer(self, position: int, bits: int) -> tuple[int, int]:
        raw, position = self.varint(position, bits)
        return raw >> 1 ^ -(raw & 1), position

    def varint(self, position: int, bits: int) -> tuple[int, int]:
        data, start = self.data, position
        result = shift = 0
        while (byte := data[position]) > 127 and shift < bits:
            result |= (byte & 127) << shift
            shift += 7
            position += 1
        result |= byte << shift
        if result >> bits:
            self.fail(start, "a variable-length integer is too large", f"at most {bits} bits")
        return result, position + 1

    def descend(self, position: int, depth: int) -> int:
        if not depth:
            self.refuse_depth(position)
        return depth - 1

    def announce(self, position: int, count: int, least_bytes: int) -> None:
        self.values_left -= count
        left = len(self.data) - position
        if count * least_bytes > left:
            self.end(position, f"{count} elements are announced", f"no more than fit the {left} bytes that are left")
        if self.values_left < 0:
            self.refuse_number(position)

    def refuse_depth(self, position: int) -> NoReturn:
        self.fail(position, "Thrift values nest too deep", f"at most {MAX_DEPTH} levels")

    def refuse_number(self, position: int) -> NoReturn:
        self.fail(position, "too many Thrift values", f"at most {self.max_values}")

    def end(self, position: int, found: str, expected: str) -> NoReturn:
        raise FormatError(f"offset {self.origin + position}: {found}; expected {expected}") from IndexError(found)

    def fail(self, position: int, found: str, expected: str) -> NoReturn:
        raise FormatError(f"offset {self.origin + position}: {found}; expected {expected}")


def _refuse_type(reader: _Reader, position: int, _depth: int) -> tuple[Value, int]:
    reader.fail(position, "a value of no Thrift type", f"a type of 1 to {UUID}")


_ReadValue: TypeAlias = Callable[[_Reader, int, int], tuple[Value, int]]
_R = _Reader
_COMMON: tuple[_ReadValue, ...] = (
    *(_R.byte, _R.i16, _R.i32, _R.i64, _R.double, _R.binary, _R.sequence, _R.sequence, _R.mapping, _R.struct, _R.uuid),
    *(_refuse_type, _refuse_type),
)
_FIELD_READERS: tuple[_ReadValue, ...] = (_refuse_type, _R.true, _refuse_type, *_COMMON)
_ELEMENT_READERS: tuple[_ReadValue, ...] = (_refuse_type, _R.boolean, _R.boolean, *_COMMON)


_WIDTHS = {BYTE: 8, I16: 16, I32: 32, I64: 64}
_MOST = {kind: (1 << bits - 1) - 1 for kind, bits in _WIDTHS.items()}


def encode_struct(struct: Struct) -> bytes:
    """Encode a struct with the shortest integers and field headers, as parquet-mr, Arrow and every Thrift library do.

    Raises:
        ValueError: a number does not fit the type of its key.
        TypeError: a value is not of the type of its key.
    """
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _write_struct(out: bytearray, struct: Struct) -> None:
    append, last = out.append, 0
    for key, value in struct.items():
        field_id, kind = key >> 4, key & 15
        delta = field_id - last
        if 0 < delta < 16:
            append(delta << 4 | (FALSE if kind == BOOL and not value else kind))
        else:
            append(FALSE if kind == BOOL and not value else kind)
            _write_integer(out, field_id, 16)
        last = field_id
        if 3 < kind < 7 and value.__class__ is int and -_MOST[kind] <= value <= _MOST[kind]:
            raw = value << 1 if value >= 0 else ~(value << 1)
            while raw > 127:
                append(raw & 127 | 128)
                raw >>= 7
            append(raw)
        elif kind == STRUCT and value.__class__ is Struct:
            _write_struct(out, value)
        elif kind != BOOL:
            _WRITERS[kind](out, kind, value)
    append(0)


def _write_checked_struct(out: bytearray, kind: int, value: Value) -> None:
    if not isinstance(value, Struct):
        _refuse_value(out, kind, value)
    _write_struct(out, value)


def _write_boolean(out: bytearray, kind: int, value: Value) -> None:
    if not isinstance(value, bool):
        _refuse_value(out, kind, value)
    out.append(BOOL if value else FALSE)


def _write_number(out: bytearray, kind: int, value: Value) -> None:
    if not isinstance(value, int):
        _refuse_value(out, kind, value)
    if kind != BYTE and 0 <= value < 64:  # as most are, in one byte
        out.append(value << 1)
    elif kind != BYTE:
        _write_integer(out, value, _WIDTHS[kind])
    elif -128 <= value < 128:
        out.append(value & 255)
    else:
        raise ValueError(f"{value} does not fit 8 bits")


def _write_binary(out: bytearray, kind: int, value: Value) -> None:
    if not isinstance(value, bytes):
        _refuse_value(out, kind, value)
    if len(value) < 128:
        out.append(len(value))
    else:
        _write_varint(out, len(value))
    out += value


def _write_fixed(out: bytearray, kind: int, value: Value) -> None:
    if not isinstance(value, bytes) or len(value) != FIXED_BYTES[kind]:
        _refuse_value(out, kind, value)
    out += value


def _write_list(out: bytearray, kind: int, values: Value) -> None:
    if not isinstance(values, List):
        _refuse_value(out, kind, values)
    element = values.element
    if len(values) < 15:
        out.append(len(values) << 4 | element)
    else:
        out.append(0xF0 | element)
        _write_varint(out, len(values))
    write = _WRITERS[element]
    for value in values:
        write(out, element, value)


def _write_map(out: bytearray, kind: int, pairs: Value) -> None:
    if not isinstance(pairs, Map):
        _refuse_value(out, kind, pairs)
    _write_varint(out, len(pairs))
    if pairs:
        out.append(pairs.key << 4 | pairs.value)
    write_key, write_value = _WRITERS[pairs.key], _WRITERS[pairs.value]
    for key, value in pairs:
        write_key(out, pairs.key, key)
        write_value(out, pairs.value, value)


def _refuse_value(_out: bytearray, kind: int, value: Value) -> NoReturn:
    raise TypeError(f"a {type(value).__name__} cannot be written as Thrift type {kind}")


_WriteValue: TypeAlias = Callable[[bytearray, int, Value], None]
_WRITERS: tuple[_WriteValue, ...] = (
    *(_refuse_value, _write_boolean, _write_boolean, _write_number, _write_number, _write_number, _write_number),
    *(_write_fixed, _write_binary, _write_list, _write_list, _write_map, _write_checked_struct, _write_fixed),
    *(_refuse_value, _refuse_value),
)
"""For each type what writes a value of it, which raises TypeError for any other value."""


def _write_integer(out: bytearray, value: int, bits: int) -> None:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{value} does not fit {bits} bits")
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
