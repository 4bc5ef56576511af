"""Finds the columns of a file whose dates and times may be in the old calendar, and converts or refuses such values.

Spark rebases them as it reads, and pyarrow does not.  Dates are converted.  Times are refused, since the history of the
time zone of the writer, or of Spark's session, decides what Spark makes of them.
Source: ``DataSourceUtils`` of Spark, ``datetimeRebaseSpec`` and ``int96RebaseSpec``; in its default configuration it
takes what no Spark wrote as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.arrow.denied import with_children
from sparkcrypt.calendars import FIRST_DAY, FIRST_GREGORIAN_DAY, gregorian_days
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.thrift.compact import BOOL, STRUCT, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, FileMetaData, SchemaElement
from sparkcrypt.schema import ELEMENT, KEY, VALUE, Path, shown_path

_INT32, _INT64, _INT96 = 1, 2, 3
_DATE, _SCALES = 6, {9: 1_000, 10: 1_000_000}
"""Annotations of dates, and of times in milliseconds and microseconds; Spark reads no others as dates and times."""
_TIMESTAMP, _IS_ADJUSTED = field_key(8, STRUCT), field_key(1, BOOL)
_SECONDS_1900 = -2_208_988_800
"""1900-01-01 in UTC: from then on neither calendars nor the history of time zones affect what Spark reads."""
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def find_old(
    metadata: FileMetaData, columns: Mapping[int, Path], chunks: Callable[[int], Iterable[SourceChunk]]
) -> frozenset[Path]:
    """Return the columns that may hold dates or times that Spark rebases.

    Args:
        metadata: the file's footer.
        columns: number of a leaf that is read -> its logical path.
        chunks: returns the chunks of a leaf.

    Raises:
        FormatError, VerificationError: a chunk's metadata are damaged.
    """
    entries = {entry.key: entry.value for entry in metadata.key_value_metadata or ()}
    version = entries.get("org.apache.spark.version")
    if version is None:
        return frozenset()
    leaves = [element for element in metadata.schema[1:] if element.type is not None]
    found = set()
    for number, path in columns.items():
        leaf = leaves[number]
        least, key = ("3.1.0", "legacyINT96") if leaf.type == _INT96 else ("3.0.0", "legacyDateTime")
        is_old = version < least or f"org.apache.spark.{key}" in entries  # as texts, as Spark compares them
        bound = _find_bound(leaf) if is_old else None
        if bound is not None and not all(_is_later(chunk.metadata, bound) for chunk in chunks(number)):
            found.add(path)
    return frozenset(found)


def _find_bound(leaf: SchemaElement) -> int | None:
    """Return the least value that the calendars have in common; None for a leaf of another type."""
    if leaf.type == _INT96:
        return 0  # its statistics have no order
    if leaf.type == _INT32:
        return FIRST_GREGORIAN_DAY if leaf.converted_type == _DATE else None
    scale, logical = _SCALES.get(leaf.converted_type or 0), leaf.logical_type
    timestamp = None if logical is None else logical.struct.get(_TIMESTAMP)
    if leaf.type != _INT64 or scale is None or (isinstance(timestamp, Struct) and not timestamp.get(_IS_ADJUSTED)):
        return None
    return _SECONDS_1900 * scale


def _is_later(chunk: ColumnMetaData, bound: int) -> bool:
    """Tell whether a chunk's statistics say that it has no value below a bound."""
    stats = chunk.statistics
    if stats is None:
        return False
    least = stats.min_value if stats.min_value is not None else stats.min
    if least is None:
        return stats.null_count == chunk.num_values
    return len(least) <= 8 and int.from_bytes(least, "little", signed=True) >= bound


def to_new_calendar(file: str, array: pa.Array, path: Path, old: frozenset[Path]) -> pa.Array:
    """Return a column of a file with its dates as Spark reads them.

    Args:
        file: the file's path.
        array: values at a logical path.
        path: that path.
        old: the columns that may hold such values.

    Raises:
        UnsupportedFileError: there is a time before 1900, or a date before the year 1; the message names the column.
    """
    if path in old:
        return _convert(file, array, path)
    if not any(leaf[: len(path)] == path for leaf in old):
        return array
    kind = array.type
    if pa.types.is_struct(kind):
        below = [(field.name, array.field(place)) for place, field in enumerate(kind)]
    elif pa.types.is_map(kind):
        below = [(KEY, array.keys), (VALUE, array.items)]
    else:
        below = [(ELEMENT, array.values)]
    return with_children(array, kind, [to_new_calendar(file, child, (*path, name), old) for name, child in below])


def _convert(file: str, array: pa.Array, path: Path) -> pa.Array:
    if pa.types.is_date32(array.type):
        days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy()
        if len(days) and days.min() < FIRST_DAY:
            raise _refuse(file, path, "a date before the year 1")
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(gregorian_days(days), pa.int32(), mask=is_null).cast(array.type)
    least = pc.min(array.cast(pa.int64())).as_py()
    if least is not None and least < _SECONDS_1900 * _UNITS[array.type.unit]:
        raise _refuse(file, path, "a time before 1900")
    return array


def _refuse(file: str, path: Path, what: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{file}: column {shown_path(path)} has {what} in the calendar of Spark 2, which only Spark converts; leave "
        "the column out, or read the file with Spark"
    )
