"""Converts raw Parquet values to Python values that compare as they do in Spark.

===================================  ====================================
Spark's type                         Python type
===================================  ====================================
boolean                              bool
byte, short, integer, long           int
float, double                        float, -0.0 as 0.0; NaN stays
decimal(p, s)                        Decimal, exact
string                               str (code points order as UTF-8 does)
binary                               bytes
date                                 int: days since 1970
timestamp, timestamp_ntz             int: microseconds since 1970
===================================  ====================================

Source: LogicalTypes.md of parquet-format; ``DataSourceUtils.datetimeRebaseSpec`` of Spark for calendars.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from struct import unpack
from typing import Final, TypeAlias

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.thrift.compact import STRUCT, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData, SchemaElement
from sparkcrypt.skipping.format.decode_chunk import Raw

Value: TypeAlias = bool | int | float | Decimal | str | bytes

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
INTEGERS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""Integer type -> its width in bits."""
FLOATS: Final = ("float", "double")
TIMESTAMPS: Final = ("timestamp", "timestamp_ntz")
_PHYSICAL = {
    **{name: (INT32,) for name in ("byte", "short", "integer", "date")},
    **{"boolean": (BOOLEAN,), "long": (INT64,), "float": (FLOAT,), "double": (DOUBLE,)},
    **{"string": (BYTE_ARRAY,), "binary": (BYTE_ARRAY,), "timestamp": (INT64, INT96), "timestamp_ntz": (INT64,)},
    "decimal": (INT32, INT64, BYTE_ARRAY, FIXED),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_MILLIS, _MICROS = 9, 10
_LOGICAL_TIMESTAMP, _UNIT = field_key(8, STRUCT), field_key(2, STRUCT)
_DECIMAL_BYTES = 64
"""Maximum length of a stored decimal: 38 digits need 16 bytes, and more bytes only repeat the sign."""
_MAX_MICROS = (1 << 63) - 1
_DAY_MICROS = 86_400_000_000
_EPOCH_JULIAN_DAY = 2_440_588
_SAFE_DAY = -25_567
"""1900-01-01: from this day on neither calendars nor the history of time zones affect what Spark reads."""
_SPARK_VERSION = "org.apache.spark.version"
_LEGACY_KEYS = ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96")


def decimal_scale(kind: str) -> int | None:
    """Return the scale of ``decimal(p,s)``; None for other types."""
    match = _DECIMAL.fullmatch(kind)
    return int(match[2]) if match else None


def converter(kind: str, element: SchemaElement, *, modern_calendar: bool) -> Callable[[Raw], Value | None]:
    """Return a function that converts a raw value, or returns None if the value cannot be compared.

    Args:
        kind: Spark's type.
        element: the column's schema element in Parquet.
        modern_calendar: whether dates and times before 1900 are known to be in the calendar of today's Spark.

    Raises:
        FormatError: Spark does not read Parquet's type as this one.
    """
    physical, scale = element.type, decimal_scale(kind)
    name = "decimal" if scale is not None else kind
    if physical not in _PHYSICAL.get(name, ()):
        raise FormatError(f"field {element.name!r} has physical type {physical} for {kind}; expected its own")
    if scale is not None:
        if (element.scale or 0) != scale:
            raise FormatError(f"field {element.name!r} has scale {element.scale} for {kind}; expected that of its type")
        most = 10 ** int(kind.partition("(")[2].partition(",")[0])
        return lambda raw: _decimal(raw, scale, most)
    if kind == "date":
        return lambda raw: raw if modern_calendar or raw >= _SAFE_DAY else None
    if kind in TIMESTAMPS:
        micros = _micros_of_int96 if physical == INT96 else _micros_of(element)
        return lambda raw: _safe_time(micros(raw), modern_calendar)
    if kind == "string":
        return _text
    if kind in FLOATS:
        return lambda raw: raw + 0.0  # turns -0.0 into 0.0
    if kind in ("byte", "short"):
        half = 1 << (INTEGERS[kind] - 1)
        return lambda raw: raw if -half <= raw < half else None  # Spark would truncate it
    return lambda raw: raw


def modern_calendar(metadata: FileMetaData) -> bool:
    """Tell whether, by the footer, Spark 3.1 or later wrote dates and times in its own calendar."""
    entries = {entry.key: entry.value for entry in metadata.key_value_metadata or ()}
    match = re.match(r"(\d{1,4})\.(\d{1,4})\.", entries.get(_SPARK_VERSION) or "")
    return match is not None and (int(match[1]), int(match[2])) >= (3, 1) and not entries.keys() & set(_LEGACY_KEYS)


def _decimal(raw: Raw, scale: int, most: int) -> Decimal | None:
    if isinstance(raw, bytes) and len(raw) > _DECIMAL_BYTES:
        return None
    unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if abs(unscaled) >= most:
        return None
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _text(raw: Raw) -> str | None:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return None


def _micros_of(element: SchemaElement) -> Callable[[Raw], int | None]:
    logical = element.logical_type
    timestamp = logical.struct.get(_LOGICAL_TIMESTAMP) if logical is not None else None
    unit = timestamp.get(_UNIT) if isinstance(timestamp, Struct) else None
    units = {number for number in (1, 2, 3) if isinstance(unit, Struct) and field_key(number, STRUCT) in unit}
    if element.converted_type == _MICROS or units == {2}:
        return lambda raw: int(raw)
    if element.converted_type == _MILLIS or units == {1}:
        return lambda raw: int(raw) * 1000
    raise FormatError(
        f"field {element.name!r} is a timestamp of an unknown unit; expected milliseconds or microseconds"
    )


def _micros_of_int96(raw: Raw) -> int | None:
    nanos, day = unpack("<qi", raw)
    return int((day - _EPOCH_JULIAN_DAY) * _DAY_MICROS + nanos // 1000)


def _safe_time(micros: int | None, modern: bool) -> int | None:
    if micros is None or abs(micros) > _MAX_MICROS:
        return None
    return micros if modern or micros >= _SAFE_DAY * _DAY_MICROS else None
