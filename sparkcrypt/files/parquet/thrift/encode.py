"""Encodes generic Thrift structs in the compact protocol, byte for byte as they were decoded."""

from __future__ import annotations

from sparkcrypt.files.parquet.thrift.compact import (
    BINARY,
    BOOL,
    BYTE,
    FALSE,
    FIXED_BYTES,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    List,
    Map,
    Struct,
    Value,
)

_BITS = {BYTE: 8, I16: 16, I32: 32, I64: 64}
_MOST = {kind: (1 << bits - 1) - 1 for kind, bits in _BITS.items()}


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
        header = FALSE if kind == BOOL and not value else kind
        delta = field_id - last
        if 0 < delta < 16:
            append(delta << 4 | header)
        else:
            append(header)
            _write_integer(out, field_id, 16)
        last = field_id
        if 3 < kind < 7 and value.__class__ is int and -_MOST[kind] <= value <= _MOST[kind]:
            raw = value << 1 if value >= 0 else ~(value << 1)
            while raw > 127:
                append(raw & 127 | 128)
                raw >>= 7
            append(raw)
        elif kind == BINARY and value.__class__ is bytes and len(value) < 128:
            append(len(value))
            out += value
        elif kind == STRUCT and value.__class__ is Struct:
            _write_struct(out, value)
        elif kind != BOOL:
            _write_value(out, kind, value)
    append(0)


def _write_value(out: bytearray, kind: int, value: Value) -> None:
    if kind in _BITS and isinstance(value, int):
        _write_number(out, kind, value)
    elif kind == BINARY and isinstance(value, bytes):
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT and isinstance(value, Struct):
        _write_struct(out, value)
    elif kind in (LIST, SET) and isinstance(value, List):
        _write_list(out, value)
    elif kind == MAP and isinstance(value, Map):
        _write_map(out, value)
    elif isinstance(value, bytes) and len(value) == FIXED_BYTES.get(kind):
        out += value
    elif kind in (BOOL, FALSE) and isinstance(value, bool):
        out.append(BOOL if value else FALSE)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be written as Thrift type {kind}")


def _write_number(out: bytearray, kind: int, value: int) -> None:
    if kind != BYTE:
        _write_integer(out, value, _BITS[kind])
    elif -128 <= value < 128:
        out.append(value & 255)
    else:
        raise ValueError(f"{value} does not fit 8 bits")


def _write_list(out: bytearray, values: List) -> None:
    if len(values) < 15:
        out.append(len(values) << 4 | values.element)
    else:
        out.append(0xF0 | values.element)
        _write_varint(out, len(values))
    for value in values:
        if value.__class__ is Struct and values.element == STRUCT:
            _write_struct(out, value)
        else:
            _write_value(out, values.element, value)


def _write_map(out: bytearray, pairs: Map) -> None:
    _write_varint(out, len(pairs))
    if pairs:
        out.append(pairs.key << 4 | pairs.value)
    for key, value in pairs:
        _write_value(out, pairs.key, key)
        _write_value(out, pairs.value, value)


def _write_integer(out: bytearray, value: int, bits: int) -> None:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{value} does not fit {bits} bits")
    _write_varint(out, value << 1 if value >= 0 else ~(value << 1))


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
