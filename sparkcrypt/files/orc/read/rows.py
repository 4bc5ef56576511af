"""Reads rows of an ORC file, of chosen columns, without the row groups that a filter rules out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.files.orc.file.cipher import LocalKeys
from sparkcrypt.files.orc.file.encryption import Variant
from sparkcrypt.files.orc.file.tail import Stripe, Tail
from sparkcrypt.files.orc.read.bounds import read_writer
from sparkcrypt.files.orc.read.column import ColumnReader, NullColumn
from sparkcrypt.files.orc.read.decimals import open_decimals
from sparkcrypt.files.orc.read.groups import join_runs, kept_groups
from sparkcrypt.files.orc.read.nested import ListColumn, StructColumn
from sparkcrypt.files.orc.read.numbers import BooleanColumn, ByteColumn, FloatColumn, IntegerColumn
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.texts import DictionaryColumn, DirectColumn
from sparkcrypt.files.orc.read.timestamps import TimestampColumn
from sparkcrypt.files.orc.read.types import ReadColumn
from sparkcrypt.files.source import Input

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
        rows_left = _rows_of(stripe, tail.stride, start, end)
        while rows_left > 0:
            count = min(rows_left, rows)
            rows_left -= count
            streams.begin_batch()
            batch = _read_batch(readers, order.schema, count)
            rows = max(1, min(most, 4 * rows, count * BATCH_BYTES // max(batch.nbytes, 1)))
            yield from _filter(batch, order.condition)


def _rows_of(stripe: Stripe, stride: int, start: int, end: int) -> int:
    return min(stripe.rows, end * stride) - start * stride if stride else stripe.rows


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
