"""Reads rows of an ORC file, of chosen columns, without the row groups that a filter rules out.

Finds the row groups of a stripe that a filter cannot rule out by their statistics.  pyarrow's datasets omit fragments
whose partition expression contradicts a filter; here a fragment, which is never opened, represents a row group, and its
partition expression the conditions from the row group's statistics.

Turns the statistics of a row group into conditions that hold for each value of a column.  Unreliable statistics rule
out nothing: those that are missing, truncated or not a number, those of kinds that writers order differently, and those
of writers that are known to have written wrong ones.  Source: ORC specification v1, "Column Statistics", "Postscript"
(writer versions).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import reduce
from itertools import product
from operator import and_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from sparkcrypt.calendars import FIRST_GREGORIAN_DAY
from sparkcrypt.files.orc.file.encryption import LocalKeys, Variant
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.tail import PS_WRITER_VERSION, WRITER, Tail
from sparkcrypt.files.orc.read.runs import unzigzag
from sparkcrypt.files.orc.read.stripe_streams import ReadColumn, StripeStreams
from sparkcrypt.files.orc.read.values import (
    UTC,
    BooleanColumn,
    ByteColumn,
    ColumnReader,
    DictionaryColumn,
    DirectColumn,
    FloatColumn,
    IntegerColumn,
    ListColumn,
    NullColumn,
    StructColumn,
    TimestampColumn,
    open_decimals,
)
from sparkcrypt.files.source import Input

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


MOST_ALTERNATIVES = 32
"""The most alternative conditions of a row group; columns that would exceed it are ignored."""


def kept_groups(
    streams: StripeStreams,
    columns: Sequence[ReadColumn],
    writer: WriterFacts,
    condition: pc.Expression,
    schema: pa.Schema,
) -> list[int]:
    """Return the numbers of the row groups to read.

    Args:
        streams: of the stripe.
        columns: the top-level columns that the filter refers to and whose statistics may be used.
        writer: the file's writer.
        condition: the filter.
        schema: a schema with all columns that the filter refers to.

    Raises:
        FormatError: a row index is damaged.
        StorageError: the storage failed.
    """
    if not streams.stripe.rows:
        return []
    indexes = [(column, index) for column in columns if (index := streams.row_index(column)) is not None]
    names, bounds = [], []
    for group in range(streams.groups if indexes else 0):
        of_columns = []
        for column, index in indexes:
            statistics = index.statistics(group)
            of_columns.append([] if statistics is None else conditions_of(column, statistics, writer))
        for alternative in _combine(of_columns):
            names.append(str(group))
            bounds.append(alternative)
    if not indexes:
        return list(range(streams.groups))
    return sorted({int(name) for name in _select_left_over(names, bounds, condition, schema)})


def join_runs(groups: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive row groups, each as its first number and the number after its last."""
    start = end = -1
    for group in groups:
        if group != end:
            if end > start:
                yield start, end
            start = group
        end = group + 1
    if end > start:
        yield start, end


def _combine(of_columns: Sequence[Sequence[pc.Expression]]) -> Iterator[pc.Expression | None]:
    """Yield conditions of which at least one holds for each row; None is the condition that always holds."""
    used, count = [], 1
    for known in of_columns:
        if known and count * len(known) <= MOST_ALTERNATIVES:
            used.append(known)
            count *= len(known)
    for chosen in product(*used):
        yield reduce(and_, chosen) if chosen else None


def _select_left_over(
    names: Sequence[str], known: Sequence[pc.Expression | None], condition: pc.Expression, schema: pa.Schema
) -> Iterator[str]:
    storage, layout = LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        layout.make_fragment(name, storage) if held is None else layout.make_fragment(name, storage, held)
        for name, held in zip(names, known, strict=True)
    ]
    return (
        fragment.path for fragment in ds.FileSystemDataset(fragments, schema, layout, storage).get_fragments(condition)
    )


BATCH_ROWS = 16_384
NESTED_BATCH_ROWS = 1_024
"""The rows of a batch with lists or maps, whose elements take memory too, and of the first batch of a stripe."""
BATCH_BYTES = 64 * 1024 * 1024
"""The size by which the rows of the next batch are chosen, at most four times as many as before."""

_FLAT = {
    "boolean": BooleanColumn,
    "byte": ByteColumn,
    "float": FloatColumn,
    "double": FloatColumn,
    "decimal": open_decimals,
    **dict.fromkeys(("short", "int", "long", "date"), IntegerColumn),
    **dict.fromkeys(("timestamp", "timestamp_instant"), TimestampColumn),
    "binary": DirectColumn,
}


@dataclass(slots=True)
class GroupCount:
    """The number of row groups that a read considered, and the number that it read."""

    seen: int = 0
    read: int = 0


@dataclass(frozen=True, slots=True)
class RowsOrder:
    """The columns and rows to read of a file.

    Attributes:
        columns: top-level columns, including those that the filter refers to.
        hidden: ids of columns that are returned as nulls, with all columns below them, without reading them.
        condition: the filter of rows; None for all.
        counted: ids of the columns that the filter refers to.
        count: incremented by the row groups that are considered and read.
    """

    columns: Sequence[ReadColumn]
    hidden: Collection[int] = frozenset()
    condition: pc.Expression | None = None
    counted: Collection[int] = frozenset()
    count: GroupCount = field(default_factory=GroupCount)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return pa.schema([pa.field(column.path[0], column.type) for column in self.columns])


def read_rows(file: Input, tail: Tail, keys: LocalKeys, order: RowsOrder) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows that the filter keeps, in order; each is decoded when it is requested.

    Args:
        file: the open file.
        tail: its tail.
        keys: opens the local keys of the variants to read.
        order: what to read.

    Raises:
        FormatError: the file is damaged.
        UnsupportedFileError: it has something that this package cannot decode.
        StorageError: the storage failed.
        Exception: any error of ``keys``.
    """
    variants = variants_read(tail, order.columns, order.hidden)
    for stripe in tail.stripes:
        opened = {variant.number: keys.open(variant, stripe.local_keys[variant.number]) for variant in variants}
        yield from _read_stripe(StripeStreams(file, tail, stripe, opened), tail, order)


def variants_read(tail: Tail, columns: Sequence[ReadColumn], hidden: Collection[int] = frozenset()) -> list[Variant]:
    """Return the variants that hold columns, or columns below them, except hidden ones."""
    found: dict[int, Variant] = {}
    pending = list(columns)
    while pending and tail.encryption is not None:
        column = pending.pop()
        if column.number not in hidden:
            variant = tail.encryption.variant_of(column.number)
            if variant is not None:
                found[variant.number] = variant
            pending.extend(column.children)
    return [found[number] for number in sorted(found)]


def _read_stripe(streams: StripeStreams, tail: Tail, order: RowsOrder) -> Iterator[pa.RecordBatch]:
    stripe, groups = streams.stripe, list(range(streams.groups))
    if order.condition is not None:
        counted = [column for column in order.columns if column.number in order.counted]
        counted = [column for column in counted if column.number not in order.hidden]
        writer = read_writer(tail, streams.timezone)
        groups = kept_groups(streams, counted, writer, order.condition, order.schema)
    order.count.seen += streams.groups
    order.count.read += len(groups)
    if not groups or not stripe.rows:
        return
    readers = [open_column(streams, column, order.hidden) for column in order.columns]
    most = NESTED_BATCH_ROWS if any(_has_lists(column) for column in order.columns) else BATCH_ROWS
    rows = NESTED_BATCH_ROWS
    for start, end in join_runs(groups):
        for reader in readers:
            reader.seek(start, end)
        rows_left = min(stripe.rows, end * tail.stride) - start * tail.stride if tail.stride else stripe.rows
        while rows_left > 0:
            count = min(rows_left, rows)
            rows_left -= count
            streams.begin_batch()
            batch = _read_batch(readers, order.schema, count)
            rows = max(1, min(most, 4 * rows, count * BATCH_BYTES // max(batch.nbytes, 1)))
            yield from _filter(batch, order.condition)


def _read_batch(readers: Sequence[ColumnReader], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if not readers:
        return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])).take(pa.array([0] * count, pa.int64())))
    return pa.RecordBatch.from_arrays([reader.read(count) for reader in readers], schema=schema)


def _filter(batch: pa.RecordBatch, condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    if condition is None:
        yield batch
        return
    yield from pa.Table.from_batches([batch]).filter(condition).to_batches()


def _has_lists(column: ReadColumn) -> bool:
    return column.kind in ("list", "map") or any(map(_has_lists, column.children))


def open_column(streams: StripeStreams, column: ReadColumn, hidden: Collection[int]) -> ColumnReader:
    """Return the reader of a column of a stripe, and of all columns below it.

    Raises:
        FormatError: its encoding is damaged.
    """
    if column.number in hidden:
        return NullColumn(column)
    if column.kind == "struct":
        return StructColumn(streams, column, [open_column(streams, child, hidden) for child in column.children])
    if column.kind in ("list", "map"):
        return ListColumn(streams, column, [open_column(streams, child, hidden) for child in column.children])
    if column.kind in _FLAT:
        return _FLAT[column.kind](streams, column)
    size = streams.dictionary_size(column)
    return DirectColumn(streams, column) if size is None else DictionaryColumn(streams, column, size)
