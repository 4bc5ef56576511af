"""Bounds of columns from the footers of data files alone: right, unknown for one file, or refused by name.

What a footer says is used only where it means what Spark reads:

====================================  ==============================================================================
in the file                           what is made of it
====================================  ==============================================================================
float, double                         the greatest is NaN, unless ``nan_count`` is 0: Arrow leaves NaN out of bounds
``min_value``, ``max_value``          used under ``TypeDefinedOrder`` alone
the old ``min``, ``max``              used of numbers alone: of bytes their order is not known
bounds of text that are no UTF-8      unknown: a maximum that was cut inside a character
no null count, no bounds, INT96       unknown: a missing bound is never taken for null
another type than the table's         unknown, as is a column that is absent (a default may stand for it)
dates and times before 1900           unknown where their calendar is
unsigned, collations, CHAR, field     refused by name: Spark compares, pads or finds them otherwise
ids, nested columns, other types
====================================  ==============================================================================

Source: parquet.thrift, ``Statistics`` and ``ColumnOrder``; ``ParquetMetadataConverter.fromParquetStatistics``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import error as StructError
from struct import unpack
from typing import Any

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.parquet.file.footer import Footer, footer_of
from sparkcrypt.parquet.file.keys import FileCiphers, RetrieveKey, VerifyAad
from sparkcrypt.parquet.file.magic import check_magic_and_unique
from sparkcrypt.parquet.file.schema import leaf_levels
from sparkcrypt.parquet.file.source import Source, naming, open_source
from sparkcrypt.parquet.rewrite.source_chunk import column_chunks
from sparkcrypt.parquet.thrift.compact import BOOL, STRUCT, Struct, field_key
from sparkcrypt.parquet.thrift.metadata import ColumnMetaData, FileMetaData, SchemaElement, Statistics
from sparkcrypt.skipping.format.store import Bounds
from sparkcrypt.skipping.format.types import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    INT96,
    Value,
    converter,
    modern_calendar,
)
from sparkcrypt.skipping.format.values import Raw

_PLAIN = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}
_CONVERTED = {
    (INT32, None): "integer", (INT32, 6): "date", (INT32, 15): "byte", (INT32, 16): "short", (INT32, 17): "integer",
    (INT64, None): "long", (INT64, 18): "long", (INT64, 9): "timestamp", (INT64, 10): "timestamp",
    (BYTE_ARRAY, None): "binary", (BYTE_ARRAY, 0): "string",
    (BOOLEAN, None): "boolean", (FLOAT, None): "float", (DOUBLE, None): "double",
}  # fmt: skip
"""Spark's type by physical and converted type."""
_DECIMAL = 5
_TYPE_ORDER = field_key(1, STRUCT)
_LOGICAL_TIMESTAMP, _IS_ADJUSTED, _UNIT = field_key(8, STRUCT), field_key(1, BOOL), field_key(2, STRUCT)
_MILLIS, _MICROS = field_key(1, STRUCT), field_key(2, STRUCT)
_REFUSED_METADATA = {
    "__COLLATIONS": "it has a collation",
    "parquet.field.id": "it is found by a field id",
}


@dataclass(frozen=True, slots=True)
class FileBounds:
    """What a data file's footer says.

    Attributes:
        length: of the file in bytes.
        file_unique: of an encrypted file, in hexadecimal.
        tail: the file's end, footer and all, for a digest.
        footer: as it was read.
        bounds: column -> its bounds, or None where they are not known.
        unknown: column -> why its bounds are not known.
    """

    length: int
    file_unique: str | None
    tail: bytes
    footer: Footer
    bounds: Mapping[str, Bounds | None]
    unknown: Mapping[str, str]


def read_bounds(
    source: Source,
    columns: Mapping[str, str],
    *,
    retrieve_key: RetrieveKey | None = None,
    verify_aad: VerifyAad | None = None,
) -> FileBounds:
    """Read the bounds of columns from a file's footer.

    Args:
        source: the data file.
        columns: column -> its Spark type in the table.
        retrieve_key: asked for the keys of the footer and of these columns.
        verify_aad: called with the file's AAD prefix before any key is asked for.

    Raises:
        FormatError: the footer is damaged.
        VerificationError: it does not authenticate.
        ConfigError: no key is given and one is needed, or a column is of a kind that has no bounds; see the module.
        KeyServiceError: a key is denied or cannot be had.
    """
    with open_source(source) as file:
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        footer = footer_of(file, ciphers, None, verify_aad)
        with naming(file.name):
            check_magic_and_unique(file, footer)
            if footer.metadata is None:
                raise ConfigError(f"{file.name}: its footer is encrypted and no key is given; pass retrieve_key")
            tail = file.read(footer.offset, file.size - footer.offset, "the footer")
            found: dict[str, Bounds | None] = {}
            unknown: dict[str, str] = {}
            for column, kind in columns.items():
                answer = _column(file, footer, footer.metadata, ciphers, column, kind)
                found[column] = None if isinstance(answer, str) else answer
                if isinstance(answer, str):
                    unknown[column] = answer
    unique = footer.aad_file_unique
    return FileBounds(file.size, None if unique is None else unique.hex(), tail, footer, found, unknown)


def column_type(metadata: FileMetaData, column: str) -> str | None:
    """Return Spark's type of a top-level column, None where the file does not have it.

    Raises:
        ConfigError: bounds of it would not be what Spark compares: the message says why.
    """
    named = _elements(metadata, column)
    if not named:
        return None
    if len(named) > 1:
        raise ConfigError(f"column {column!r}: is there in several spellings; rename all but one")
    element = named[0]
    if element.type is None or element.repetition_type == 2:
        raise _refuse_column(column, "it is nested or repeated")
    if element.type == INT96:
        raise _refuse_column(column, "it is INT96, of which Parquet keeps no bounds: write it as TIMESTAMP_MICROS")
    kind = _kind(element)
    if kind is None:
        raise _refuse_column(
            column, f"its Parquet type {element.type} ({element.converted_type}) is not one that is compared"
        )
    _check_spark(metadata, column)
    return kind


def _refuse_column(column: str, why: str) -> ConfigError:
    return ConfigError(f"column {column!r}: has no minmax index, since {why}; leave it out, or index it by values")


def _elements(metadata: FileMetaData, column: str) -> list[SchemaElement]:
    """Return the top-level fields of that name, as Spark finds them: whatever their case."""
    found, skip = [], 0
    for element in metadata.schema[1:]:
        if skip == 0 and element.name.lower() == column.lower():
            found.append(element)
        skip += (element.num_children or 0) - (1 if skip else 0)
    return found


def _kind(element: SchemaElement) -> str | None:
    if element.converted_type == _DECIMAL and element.precision and element.type in (INT32, INT64, BYTE_ARRAY, FIXED):
        return f"decimal({element.precision},{element.scale or 0})"
    timestamp = None if element.logical_type is None else element.logical_type.struct.get(_LOGICAL_TIMESTAMP)
    if isinstance(timestamp, Struct):
        unit = timestamp.get(_UNIT)
        known = element.type == INT64 and isinstance(unit, Struct) and (_MILLIS in unit or _MICROS in unit)
        return ("timestamp" if timestamp.get(_IS_ADJUSTED) else "timestamp_ntz") if known else None
    if element.converted_type is None and element.logical_type is not None:
        return None
    return _CONVERTED.get((element.type or 0, element.converted_type))


def _check_spark(metadata: FileMetaData, column: str) -> None:
    """Refuse what Spark's own schema in the footer says to be compared, padded or found otherwise."""
    text = next((entry.value for entry in metadata.key_value_metadata or () if entry.key == SPARK_SCHEMA), None)
    try:
        document: Any = json.loads(text or "{}")
        fields = [entry for entry in document.get("fields", ()) if str(entry["name"]).lower() == column.lower()]
        entries = [(key, value) for field in fields for key, value in (field.get("metadata") or {}).items()]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"{SPARK_SCHEMA} is not the JSON that Spark writes; expected a struct") from error
    for key, value in entries:
        if key in _REFUSED_METADATA:
            raise _refuse_column(column, _REFUSED_METADATA[key])
        if key == "__CHAR_VARCHAR_TYPE_STRING" and str(value).startswith("char"):
            raise _refuse_column(column, "it is CHAR, which Spark pads")


def _column(
    file: Any, footer: Footer, metadata: FileMetaData, ciphers: FileCiphers | None, column: str, kind: str
) -> Bounds | str:
    found = column_type(metadata, column)
    if found is None:
        return "the file does not have the column"
    if found != kind:
        return f"the file has it as {found}"
    (element,) = _elements(metadata, column)
    at = [column.path for column in footer.columns or ()].index((element.name,))
    if leaf_levels(metadata)[at].repetition:
        return "it is repeated"
    convert = converter(kind, element, modern_calendar=modern_calendar(metadata))
    typed = _is_typed(metadata, at)
    sides: list[tuple[Value, Value]] = []
    for chunk in column_chunks(file, footer, ciphers, at):
        statistics = chunk.metadata.statistics
        if not chunk.metadata.num_values or (statistics and statistics.null_count == chunk.metadata.num_values):
            continue
        raw = _raw(chunk.metadata, statistics, element, typed)
        if isinstance(raw, str):
            return raw
        side = _side(convert(raw[0]), convert(raw[1]), kind in FLOATS, statistics)
        if isinstance(side, str):
            return side
        sides.append(side)
    return _unite_bounds(sides)


def _side(
    least: Value | None, greatest: Value | None, floats: bool, statistics: Statistics | None
) -> tuple[Value, Value] | str:
    """Return the bounds of a row group, or why they are not known."""
    if least is None or greatest is None:
        return "its bounds are no UTF-8, or before 1900 in an unknown calendar"
    if floats:
        if least != least:
            return "its least value is not a number"
        if statistics is None or statistics.nan_count != 0:
            greatest = math.nan
    if _comparable(least) > _comparable(greatest):
        return "its least value is greater than its greatest"
    return least, greatest


def _is_typed(metadata: FileMetaData, at: int) -> bool:
    orders = metadata.column_orders
    return orders is not None and at < len(orders) and _TYPE_ORDER in orders[at]


def _raw(
    metadata: ColumnMetaData, statistics: Statistics | None, element: SchemaElement, typed: bool
) -> tuple[Raw, Raw] | str:
    if statistics is None:
        return "its footer has no statistics"
    least, greatest = (statistics.min_value, statistics.max_value) if typed else (None, None)
    if (least is None or greatest is None) and metadata.type not in (BYTE_ARRAY, FIXED):
        least, greatest = statistics.min, statistics.max
    if least is None or greatest is None:
        return "its footer has no bounds in an order that is known"
    return _plain(least, element), _plain(greatest, element)


def _plain(data: bytes, element: SchemaElement) -> Raw:
    kind = element.type or 0
    try:
        if kind == BOOLEAN:
            (flag,) = unpack("<B", data)
            return bool(flag)
        return unpack(_PLAIN[kind], data)[0] if kind in _PLAIN else data
    except StructError as error:
        raise FormatError(f"a bound of {element.name!r} has {len(data)} bytes; expected those of its type") from error


def _unite_bounds(sides: Sequence[tuple[Value, Value]]) -> Bounds:
    """Return the bounds over all row groups; a NaN is greater than any number."""
    if not sides:
        return Bounds(None, None)
    least = min((side for side, _ in sides), key=_comparable)
    return Bounds(least, max((side for _, side in sides), key=_comparable))


def _comparable(value: Value) -> Any:
    return (value != value, 0 if value != value else value)
