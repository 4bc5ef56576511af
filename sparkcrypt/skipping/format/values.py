"""The values of one leaf column: decoded from its pages, and made comparable as Spark compares them.

Pages are decoded within limits of bytes and values, using only the standard library: V1 pages with plain and dictionary
encoding, which are the defaults of Spark and Arrow.  Each is decompressed to exactly the size that its header
announces, and never further.

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

Source: Encodings.md and LogicalTypes.md of parquet-format; ``DataSourceUtils.datetimeRebaseSpec`` of Spark for
calendars.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from struct import Struct, unpack, unpack_from
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias

from sparkcrypt.errors import FormatError, show
from sparkcrypt.files.parquet.file.schema import LeafLevels
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.summary import NAMES
from sparkcrypt.files.parquet.thrift.compact import STRUCT, field_key
from sparkcrypt.files.parquet.thrift.compact import Struct as ThriftStruct
from sparkcrypt.files.parquet.thrift.metadata import Encoding, FileMetaData, PageType, SchemaElement

_GZIP_OR_ZLIB = 47
"""zlib's ``wbits`` that accepts either header."""


def decompress_page(body: bytes, codec: int, size: int) -> bytes:
    """Return a page's decompressed bytes.

    Args:
        body: the page as it is stored.
        codec: its number in ``CompressionCodec`` of parquet.thrift.
        size: the announced size in bytes, whose limit the caller has checked.

    Raises:
        FormatError: the page does not decompress to this size, or its codec is not supported.
    """
    name = NAMES[codec] if 0 <= codec < len(NAMES) else show(codec)
    if name == "uncompressed":
        found = body
    elif name == "gzip":
        found = _inflate(body, size)
    elif name == "snappy":
        found = _decompress_snappy(body, size)
    else:
        raise FormatError(
            f"a page is compressed by {name}; expected snappy, gzip or none: write the store with one of them"
        )
    if len(found) != size:
        raise FormatError(f"a page has {len(found)} bytes; expected the {size} that its header announces")
    return found


def _inflate(body: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, size + 1)
    except zlib.error as error:
        raise FormatError(f"a page is not gzip ({error}); expected what its column says") from error


def _decompress_snappy(body: bytes, size: int) -> bytes:
    """Decompress raw Snappy.  Source: format_description.txt of google/snappy."""
    try:
        announced, at = _length_in_snappy(body)
        if announced != size:
            raise FormatError(f"a page announces {announced} bytes in Snappy; expected {size}")
        out = bytearray()
        while at < len(body):
            at = _literal(body, at, out) if not body[at] & 3 else _copy(body, at, out)
            if len(out) > size:
                raise FormatError(f"a page has more than {size} bytes in Snappy; expected no more")
    except IndexError as error:
        raise FormatError("a page ends inside an element of Snappy; expected all of it") from error
    return bytes(out)


def _length_in_snappy(body: bytes) -> tuple[int, int]:
    value = 0
    for at in range(5):
        value |= (body[at] & 127) << (7 * at)
        if body[at] < 128:
            return value, at + 1
    raise FormatError("a page's length in Snappy is too large; expected at most 32 bits")


def _literal(body: bytes, at: int, out: bytearray) -> int:
    length, at = body[at] >> 2, at + 1
    if length >= 60:
        extra = length - 59
        length, at = int.from_bytes(body[at : at + extra], "little"), at + extra
    end = at + length + 1
    if end > len(body):
        raise FormatError(f"a page has a literal of {length + 1} bytes in Snappy; expected no more than are left")
    out += body[at:end]
    return end


def _copy(body: bytes, at: int, out: bytearray) -> int:
    tag = body[at]
    if tag & 3 == 1:
        length, offset, end = (tag >> 2 & 7) + 4, (tag & 0xE0) << 3 | body[at + 1], at + 2
    else:
        extra = 2 if tag & 3 == 2 else 4
        length, end = (tag >> 2) + 1, at + 1 + extra
        offset = int.from_bytes(body[at + 1 : end], "little")
        if end > len(body):
            raise IndexError
    if not 0 < offset <= len(out):
        raise FormatError(f"a page copies from {offset} bytes before in Snappy; expected 1 to {len(out)}")
    start = len(out) - offset
    piece = out[start : start + length]
    while len(piece) < length:
        piece += piece[: length - len(piece)]
    out += piece
    return end


Raw: TypeAlias = Any
"""A raw Parquet value: bool, int, float, or bytes (also for INT96 and fixed lengths)."""
_U32 = Struct("<I").unpack_from
_WIDTHS = {1: ("i", 4), 2: ("q", 8), 4: ("f", 4), 5: ("d", 8)}
_BOOLEAN, _INT96, _BYTE_ARRAY, _FIXED = 0, 3, 6, 7
_INT96_BYTES = 12
_MAX_BITS = 32
PART_BYTES, PART_VALUES = 256 << 20, 4 << 20
"""Limits of a part; the writer ends a part at an eighth of them, so one object may take up the rest."""


class Decoded(NamedTuple):
    """The entries of a leaf in file order: repetition and definition levels of all, and values of those not null."""

    repetitions: list[int] | None
    definitions: list[int] | None
    values: list[Raw]


@dataclass(slots=True)
class Budget:
    """The remaining limits for reading a store, or one part of it.

    Attributes:
        bytes: decompressed bytes of pages.
        values: entries of leaves, including nulls.
    """

    bytes: int = 1 << 30
    values: int = 1 << 24

    def take(self, size: int, values: int) -> None:
        """Subtract the size and values that a page's header announces.

        Raises:
            FormatError: they exceed what remains.
        """
        self.bytes -= size
        self.values -= values
        if self.bytes < 0 or self.values < 0:
            raise FormatError(
                "the store's columns hold more than is read at once; expected at most 1 GiB and 16 million values of a "
                "whole store, and 256 MiB and 4 million of a part that tasks read"
            )


def part_budget() -> Budget:
    """Return the limits for one part of a store whose sidecar contains the sizes of its parts."""
    return Budget(PART_BYTES, PART_VALUES)


def decode_chunk(chunk: SourceChunk, levels: LeafLevels, type_length: int, budget: Budget) -> Decoded:
    """Return the entries of a column chunk.

    Args:
        chunk: the column chunk.
        levels: the leaf's maximum levels.
        type_length: the length of a fixed-length type.
        budget: the remaining limits.

    Raises:
        FormatError: the bytes violate the specification, have an unsupported encoding, or exceed the limits.
        VerificationError: a page does not authenticate.
    """
    wanted = chunk.metadata.num_values
    read = _plain_reader(chunk.metadata.type, type_length)
    found = Decoded([] if levels.repetition else None, [] if levels.definition else None, [])
    dictionary: list[Raw] | None = None
    count = 0
    try:
        for page in chunk.page_source().pages():
            head = page.head
            budget.take(head.uncompressed, head.values)
            if head.type == PageType.DATA_PAGE_V2:
                raise FormatError(
                    f"{chunk.name} has V2 data pages; expected V1: write it with parquet.writer.version=v1"
                )
            body = decompress_page(bytes(page.body), chunk.metadata.codec, head.uncompressed)
            if head.type == PageType.DICTIONARY_PAGE:
                dictionary = _dictionary(read, body, chunk.metadata.type, budget)
                continue
            count += head.values
            _data_page(_Page(body, head.values, head.encoding), levels, read, dictionary, found)
    except (StructError, IndexError) as error:
        raise FormatError(f"{chunk.name}: a page ends inside a value; expected all of it") from error
    if count != wanted or (not chunk.repeated and count != chunk.rows):
        raise FormatError(f"{chunk.name} has {count} values in its pages; expected {wanted}, as its metadata says")
    return found


class _Page(NamedTuple):
    body: bytes
    entries: int
    encoding: int


_ReadPlain: TypeAlias = Callable[[bytes, int, int], "list[Raw]"]


def _data_page(page: _Page, levels: LeafLevels, read: _ReadPlain, dictionary: list[Raw] | None, found: Decoded) -> None:
    at, present = 0, page.entries
    if found.repetitions is not None:
        repetitions, at = _levels(page, at, levels.repetition)
        found.repetitions.extend(repetitions)
    if found.definitions is not None:
        definitions, at = _levels(page, at, levels.definition)
        found.definitions.extend(definitions)
        present = definitions.count(levels.definition)
    if page.encoding == Encoding.PLAIN:
        found.values.extend(read(page.body, at, present))
    elif page.encoding in (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY):
        if not present:
            return
        if dictionary is None:
            raise FormatError("a page refers to a dictionary; expected a dictionary page before it")
        numbers = _hybrid(page.body, at + 1, page.body[at], present)
        if max(numbers) >= len(dictionary):
            raise FormatError(
                f"a page refers to value {max(numbers)} of a dictionary of {len(dictionary)}; expected less"
            )
        found.values.extend([dictionary[number] for number in numbers])
    else:
        raise FormatError(f"a page has encoding {page.encoding}; expected PLAIN, PLAIN_DICTIONARY or RLE_DICTIONARY")


def _dictionary(read: _ReadPlain, body: bytes, kind: int, budget: Budget) -> list[Raw]:
    if kind == _BOOLEAN or len(body) // 4 > budget.values:
        raise FormatError(
            f"a dictionary page of {len(body)} bytes; expected none of booleans, and no more values than are left"
        )
    values = read(body, 0, -1)
    budget.take(0, len(values))
    return values


def _levels(page: _Page, at: int, most: int) -> tuple[list[int], int]:
    (size,) = _U32(page.body, at)
    end = at + 4 + size
    if end > len(page.body):
        raise FormatError(f"a page has {size} bytes of levels; expected no more than the page")
    levels = _hybrid(page.body[:end], at + 4, most.bit_length(), page.entries)
    if levels and max(levels) > most:
        raise FormatError(f"a page has level {max(levels)}; expected at most {most}")
    return levels, end


def _hybrid(data: bytes, at: int, width: int, count: int) -> list[int]:
    """Return ``count`` numbers from runs and bit-packed groups, even if the runs announce more."""
    if width > _MAX_BITS:
        raise FormatError(f"numbers of {width} bits; expected at most {_MAX_BITS}")
    if not width:
        return [0] * count
    found: list[int] = []
    octets, mask = (width + 7) // 8, (1 << width) - 1
    while len(found) < count:
        head, at = _varint(data, at)
        missing = count - len(found)
        if not head >> 1:
            raise FormatError("a run of no numbers; expected one or more")
        if not head & 1:
            if at + octets > len(data):
                raise IndexError
            found.extend([int.from_bytes(data[at : at + octets], "little")] * min(head >> 1, missing))
            at += octets
            continue
        groups = min(head >> 1, -(-missing // 8))
        if at + groups * width > len(data):
            raise IndexError
        for start in range(at, at + groups * width, width):
            packed = int.from_bytes(data[start : start + width], "little")
            found.extend([packed >> shift & mask for shift in range(0, 8 * width, width)])
        at += (head >> 1) * width
    return found[:count]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > _MAX_BITS:
            raise FormatError("the length of a run is too large; expected at most 32 bits")


def _plain_reader(kind: int, type_length: int) -> _ReadPlain:
    """Return a function that reads a number of plain values from an offset on; all that remain for -1."""
    if kind in _WIDTHS:
        letter, width = _WIDTHS[kind]
        return lambda data, at, count: list(unpack_from(f"<{_count_values(data, at, count, width)}{letter}", data, at))
    if kind in (_INT96, _FIXED):
        size = _INT96_BYTES if kind == _INT96 else type_length
        if size < 1:
            raise FormatError(f"values of a fixed length of {size} bytes; expected 1 or more")
        return lambda data, at, count: list(_split_fixed(data, at, _count_values(data, at, count, size), size))
    if kind == _BYTE_ARRAY:
        return _byte_arrays
    if kind == _BOOLEAN:
        return _booleans
    raise FormatError(f"values of physical type {kind}; expected 0 to 7")


def _count_values(data: bytes, at: int, count: int, width: int) -> int:
    most = (len(data) - at) // width
    if count > most:
        raise IndexError
    return most if count < 0 else count


def _split_fixed(data: bytes, at: int, count: int, size: int) -> Iterator[bytes]:
    for start in range(at, at + count * size, size):
        yield data[start : start + size]


def _byte_arrays(data: bytes, at: int, count: int) -> list[Raw]:
    found: list[Raw] = []
    while len(found) != count and not (count < 0 and at == len(data)):
        (size,) = _U32(data, at)
        end = at + 4 + size
        if end > len(data):
            raise IndexError
        found.append(data[at + 4 : end])
        at = end
    return found


def _booleans(data: bytes, at: int, count: int) -> list[Raw]:
    count = (len(data) - at) * 8 if count < 0 else count
    if (count + 7) // 8 > len(data) - at:
        raise IndexError
    return [bool(data[at + (number >> 3)] >> (number & 7) & 1) for number in range(count)]


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
    unit = timestamp.get(_UNIT) if isinstance(timestamp, ThriftStruct) else None
    units = {number for number in (1, 2, 3) if isinstance(unit, ThriftStruct) and field_key(number, STRUCT) in unit}
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
