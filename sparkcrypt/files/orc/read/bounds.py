"""Turns the statistics of a row group into conditions that hold for each value of a column.

Unreliable statistics rule out nothing: those that are missing, truncated or not a number, those of kinds that writers
order differently, and those of writers that are known to have written wrong ones.
Source: ORC specification v1, "Column Statistics", "Postscript" (writer versions).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.calendars import FIRST_GREGORIAN_DAY
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.tail import PS_WRITER_VERSION, WRITER, Tail
from sparkcrypt.files.orc.read.integer_runs import unzigzag
from sparkcrypt.files.orc.read.timestamps import UTC
from sparkcrypt.files.orc.read.types import ReadColumn

Bounds: TypeAlias = "tuple[Any, Any] | None"

_COUNT, _INTEGERS, _FLOATS, _TEXTS, _BUCKETS, _DECIMALS, _DATES, _TIMES, _HAS_NULL = 1, 2, 3, 4, 5, 6, 7, 9, 10
_LEAST, _MOST, _LEAST_PART, _MOST_PART, _LEAST_UTC, _MOST_UTC = 1, 2, 4, 5, 3, 4
_TRUE_TEXTS, _TRUE_TIMES = 1, 6
"""The first versions of ORC's Java writer with correct statistics of texts (HIVE-8732) and times (ORC-135)."""
_JAVA = 0
_MILLISECONDS_OF_DAY = 86_400_000
_NANOS_OF_MILLISECOND = 1_000_000
_MOST_MILLISECONDS = (1 << 63) // _NANOS_OF_MILLISECOND - 1


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """Properties of the writer that bounds depend on.

    Attributes:
        true_texts: the statistics of texts are correct.
        true_times: the statistics of times are correct.
        timezone: the writer's time zone in the stripe.
    """

    true_texts: bool
    true_times: bool
    timezone: str


def read_writer(tail: Tail, timezone: str) -> WriterFacts:
    """Return the properties of a file's writer that bounds depend on.

    Raises:
        FormatError: the footer or postscript is damaged.
    """
    version, is_java = tail.postscript.integer(PS_WRITER_VERSION, bits=32), tail.footer.integer(WRITER) == _JAVA
    return WriterFacts(not is_java or version >= _TRUE_TEXTS, not is_java or version >= _TRUE_TIMES, timezone)


def conditions_of(column: ReadColumn, statistics: Message, writer: WriterFacts) -> list[pc.Expression]:
    """Return conditions of which at least one holds for each row of a row group; none if nothing is known.

    Args:
        column: a top-level column.
        statistics: its statistics of the row group.
        writer: the file's writer.

    Raises:
        FormatError: the statistics are damaged.
    """
    field = pc.field(column.path[0])
    if not statistics.has(_COUNT):
        return []
    may_be_null = not statistics.has(_HAS_NULL) or bool(statistics.integer(_HAS_NULL))
    if statistics.integer(_COUNT) == 0:
        return [field.is_null()] if may_be_null else []
    read = _READERS.get(column.kind)
    bounds = None if read is None else read(statistics, column, writer)
    if bounds is None:
        return [] if may_be_null else [field.is_valid()]
    try:
        least, most = (pa.scalar(bound, column.type) for bound in bounds)
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return []
    above, below = field >= least, field <= most
    if may_be_null:  # added to each bound, since pyarrow cannot use "both bounds, or null"
        above, below = above | field.is_null(), below | field.is_null()
    conditions = [above & below]
    if column.kind in ("float", "double"):  # statistics leave NaN out
        conditions.append(field == pa.scalar(math.nan, column.type))
    return conditions


def _integers(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    found = statistics.message(_INTEGERS, "statistics of integers")
    return None if found is None else _signed_bounds(found)


def _signed_bounds(found: Message) -> Bounds:
    if not found.has(_LEAST) or not found.has(_MOST):
        return None
    return unzigzag(found.integer(_LEAST)), unzigzag(found.integer(_MOST))


def _dates(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    found = statistics.message(_DATES, "statistics of dates")
    days = None if found is None else _signed_bounds(found)
    return None if days is None or min(days) < FIRST_GREGORIAN_DAY else days


def _floats(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    found = statistics.message(_FLOATS, "statistics of floating-point numbers")
    if found is None:
        return None
    least, most = (_float(found, number) for number in (_LEAST, _MOST))
    return None if math.isnan(least) or math.isnan(most) else (least, most)


def _float(found: Message, number: int) -> float:
    """Return a number; NaN if it is missing."""
    raw = next((value for key, value in found.fields if key >> 3 == number), b"")
    return float(struct.unpack("<d", raw)[0]) if isinstance(raw, bytes) and len(raw) == 8 else math.nan


def _texts(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    found = statistics.message(_TEXTS, "statistics of texts")
    if found is None or not writer.true_texts:
        return None
    least = found.data(_LEAST) if found.has(_LEAST) else found.data(_LEAST_PART)
    most = found.data(_MOST) if found.has(_MOST) else found.data(_MOST_PART)
    if least is None or most is None:
        return None
    try:
        return least.decode(), most.decode()
    except UnicodeDecodeError:
        return None


def _booleans(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    found = statistics.message(_BUCKETS, "statistics of booleans")
    counts = [] if found is None else found.integers(1, bits=63)
    if len(counts) != 1:
        return None
    return counts[0] == statistics.integer(_COUNT), counts[0] > 0


def _decimals(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    found = statistics.message(_DECIMALS, "statistics of decimals")
    texts = (None, None) if found is None else (found.text(_LEAST), found.text(_MOST))
    try:
        least, most = (Decimal(text) for text in texts if text is not None)
    except (InvalidOperation, ValueError):
        return None
    return (least, most) if least.is_finite() and most.is_finite() else None


def _times(statistics: Message, column: ReadColumn, writer: WriterFacts) -> Bounds:
    """Return nanoseconds, widened by a millisecond, or by a day for local times of a writer that was not in UTC."""
    found = statistics.message(_TIMES, "statistics of times")
    if found is None or not writer.true_times or not found.has(_LEAST_UTC) or not found.has(_MOST_UTC):
        return None
    slack = 1 if writer.timezone in UTC or column.kind == "timestamp_instant" else _MILLISECONDS_OF_DAY
    least, most = unzigzag(found.integer(_LEAST_UTC)) - slack, unzigzag(found.integer(_MOST_UTC)) + slack
    if least < -_MOST_MILLISECONDS or most > _MOST_MILLISECONDS:
        return None
    return least * _NANOS_OF_MILLISECOND, most * _NANOS_OF_MILLISECOND


_READERS: Mapping[str, Callable[[Message, ReadColumn, WriterFacts], Bounds]] = {
    **dict.fromkeys(("byte", "short", "int", "long"), _integers),
    **dict.fromkeys(("float", "double"), _floats),
    **dict.fromkeys(("timestamp", "timestamp_instant"), _times),
    "boolean": _booleans,
    "string": _texts,
    "decimal": _decimals,
    "date": _dates,
}
"""Char and varchar have none: writers differ in whether they truncate and pad before or after taking statistics."""
