"""Describes the columns to read of an ORC file, with the Arrow types that pyarrow's own ORC reader gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.schema import Column
from sparkcrypt.files.orc.file.tail import TYPES, Tail
from sparkcrypt.schema import Path, shown_path

_PRECISION, _SCALE = 5, 6
MOST_DIGITS = 38
_OF_HIVE_11 = (38, 10)
"""Precision and scale of decimals whose type has neither, as in ORC's Java reader."""
_FLAT = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("ns"),
    "timestamp_instant": pa.timestamp("ns", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to read, and the columns below it.

    Attributes:
        number: its column id.
        path: its path in the file, with ORC's names.
        kind: its name in `sparkcrypt.files.orc.file.schema.KINDS`.
        type: its Arrow type.
        children: the fields of a struct, the element of a list, or the key and value of a map.
    """

    number: int
    path: Path
    kind: str
    type: pa.DataType
    children: tuple[ReadColumn, ...]

    @property
    def shown(self) -> str:
        """The column's path, for messages."""
        return shown_path(self.path)


def find_columns(tail: Tail) -> tuple[Column, ...]:
    """Return the top-level columns.

    Raises:
        UnsupportedFileError: the root is not a struct.
        FormatError: two columns have the same name.
    """
    root = tail.columns[0]
    if root.kind != "struct":
        raise UnsupportedFileError(f"its root is a {root.kind}; allowed: a struct; read it with Spark")
    found = tuple(tail.columns[number] for number in root.children)
    if len({column.path for column in found}) < len(found):
        raise FormatError("two columns have one name; expected each once")
    return found


def read_type(tail: Tail, column: Column) -> ReadColumn:
    """Return a column, with all columns below it, as a column to read.

    Raises:
        UnsupportedFileError: a column is of a kind that this package does not decode.
        FormatError: a decimal has an invalid precision or scale, or a struct has two fields of the same name.
    """
    return _read_type(tail.columns, tail.footer.messages(TYPES, "a type"), column)


def _read_type(columns: Sequence[Column], types: Sequence[Message], column: Column) -> ReadColumn:
    children = tuple(_read_type(columns, types, columns[number]) for number in column.children)
    make = _NESTED.get(column.kind)
    if make is not None:
        found = make(children)
    elif column.kind == "decimal":
        found = _decimal(types[column.number], column)
    elif column.kind in _FLAT:
        found = _FLAT[column.kind]
    else:
        raise UnsupportedFileError(
            f"column {shown_path(column.path)} is of kind {column.kind}, which is not decoded here; leave it out, or "
            "read the file with Spark"
        )
    return ReadColumn(column.number, column.path, column.kind, found, children)


def _decimal(message: Message, column: Column) -> pa.DataType:
    if not message.has(_PRECISION):  # Hive 0.11 wrote none
        return pa.decimal128(*_OF_HIVE_11)
    precision, scale = message.integer(_PRECISION, bits=32), message.integer(_SCALE, bits=32)
    if not 0 < precision <= MOST_DIGITS or scale > precision:
        raise FormatError(
            f"column {shown_path(column.path)} is a decimal of {precision} digits, {scale} of them after the point; "
            f"expected 1 to {MOST_DIGITS} digits"
        )
    return pa.decimal128(precision, scale)


def _struct(children: Sequence[ReadColumn]) -> pa.DataType:
    names = [child.path[-1] for child in children]
    if len(set(names)) < len(names):
        raise FormatError(f"a struct has the fields {', '.join(names)}; expected each once")
    return pa.struct([pa.field(child.path[-1], child.type) for child in children])


def _list(children: Sequence[ReadColumn]) -> pa.DataType:
    (element,) = children
    return pa.list_(element.type)


def _map(children: Sequence[ReadColumn]) -> pa.DataType:
    key, value = children
    return pa.map_(key.type, value.type)


_NESTED: Mapping[str, Callable[[Sequence[ReadColumn]], pa.DataType]] = {"struct": _struct, "list": _list, "map": _map}
