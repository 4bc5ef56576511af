"""Reads bounds of columns from the footers of data files; bounds that may be wrong are unknown.

Statistics of a footer are used only if they are bounds of what Spark reads:

====================================  ==============================================================================
in the file                           bounds
====================================  ==============================================================================
float, double                         the greatest is NaN, unless ``nan_count`` is 0: Arrow leaves NaN out of bounds
``min_value``, ``max_value``          used only under ``TypeDefinedOrder``
the old ``min``, ``max``              not used for byte arrays, whose order they do not define
bounds of text that are not UTF-8     unknown: a maximum that was truncated inside a character
no bounds                             unknown, unless the null count shows that all values are null
dates and times before 1900           unknown if their calendar is unknown
====================================  ==============================================================================

Source: parquet.thrift, ``Statistics`` and ``ColumnOrder``; ``ParquetMetadataConverter.fromParquetStatistics``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import error as StructError
from struct import unpack
from typing import Any

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.thrift.compact import STRUCT, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, FileMetaData, SchemaElement, Statistics
from sparkcrypt.skipping.format.convert_values import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    Value,
    converter,
    modern_calendar,
)
from sparkcrypt.skipping.format.decode_chunk import Raw
from sparkcrypt.skipping.format.store import Bounds
from sparkcrypt.skipping.indexes.data_file import DataFile, FileColumn

_PLAIN = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}
_TYPE_ORDER = field_key(1, STRUCT)


def find_bounds(data: DataFile, column: FileColumn, kind: str) -> Bounds | str:
    """Return the bounds of a column, or the reason why they are unknown.

    Args:
        data: the file, of which only the footer and the column's metadata are read.
        column: the column.
        kind: its Spark type.

    Raises:
        FormatError: the metadata is damaged.
        VerificationError: it does not authenticate.
        KeyServiceError: the column's key is denied or unavailable.
    """
    element = column.element
    convert = converter(kind, element, modern_calendar=modern_calendar(data.metadata))
    typed = _is_typed(data.metadata, column.at)
    sides: list[tuple[Value, Value]] = []
    for chunk in data.chunks(column.at):
        statistics = chunk.metadata.statistics
        if not chunk.metadata.num_values or (statistics and statistics.null_count == chunk.metadata.num_values):
            continue
        raw = _read_raw_bounds(chunk.metadata, statistics, element, typed)
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
    """Return the bounds of a row group, or the reason why they are unknown."""
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


def _read_raw_bounds(
    metadata: ColumnMetaData, statistics: Statistics | None, element: SchemaElement, typed: bool
) -> tuple[Raw, Raw] | str:
    if statistics is None:
        return "its footer has no statistics"
    least, greatest = (statistics.min_value, statistics.max_value) if typed else (None, None)
    if (least is None or greatest is None) and metadata.type not in (BYTE_ARRAY, FIXED):
        least, greatest = statistics.min, statistics.max
    if least is None or greatest is None:
        return "its footer has no bounds in an order that is known"
    return _decode_plain(least, element), _decode_plain(greatest, element)


def _decode_plain(data: bytes, element: SchemaElement) -> Raw:
    kind = element.type or 0
    try:
        if kind == BOOLEAN:
            (flag,) = unpack("<B", data)
            return bool(flag)
        return unpack(_PLAIN[kind], data)[0] if kind in _PLAIN else data
    except StructError as error:
        raise FormatError(f"a bound of {element.name!r} has {len(data)} bytes; expected those of its type") from error


def _unite_bounds(sides: Sequence[tuple[Value, Value]]) -> Bounds:
    """Return the bounds of all row groups together; NaN is greater than any number."""
    if not sides:
        return Bounds(None, None)
    least = min((side for side, _ in sides), key=_comparable)
    return Bounds(least, max((side for _, side in sides), key=_comparable))


def _comparable(value: Value) -> Any:
    return (value != value, 0 if value != value else value)
