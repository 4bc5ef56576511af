"""Rows of a store: what it says of one object, taken out of a store, put together again, and measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sparkcrypt.skipping.format.convert_values import Value
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import BLOOM
from sparkcrypt.skipping.format.store import UNKNOWN, Entry


class Row(NamedTuple):
    """What a store says of one object: the value of each partition column and the entry of each index, in its order."""

    name: str
    partitions: tuple[object, ...]
    entries: tuple[Entry | None, ...]


class RowSize(NamedTuple):
    """What a row takes of a store that is read: bytes, decompressed, about, and values."""

    bytes: int
    values: int


def rows_of(store: Store) -> Iterator[Row]:
    """Yield the rows of a store, all of whose indexes were read."""
    partitions = [values for _, values in store.partitions]
    indexes = [held.entries for held in store.indexes]
    for number, name in enumerate(store.objects):
        yield Row(name, tuple([of[number] for of in partitions]), tuple([of[number] for of in indexes]))


def with_rows(shape: Store, rows: Sequence[Row]) -> Store:
    """Return a store of the partition columns and indexes of another one, with these rows."""
    return replace(
        shape,
        objects=tuple([row.name for row in rows]),
        partitions=tuple(
            (column, tuple([row.partitions[place] for row in rows]))
            for place, (column, _) in enumerate(shape.partitions)
        ),
        indexes=tuple(
            replace(held, entries=tuple([row.entries[place] for row in rows]))
            for place, held in enumerate(shape.indexes)
        ),
    )


def is_known(shape: Store, row: Row) -> bool:
    """Tell whether bounds, values and partitions of an object are known; a Bloom filter may be missing."""
    return UNKNOWN not in row.partitions and all(
        entry is not None or held.index.kind == BLOOM for entry, held in zip(row.entries, shape.indexes, strict=True)
    )


def measure_row(row: Row) -> RowSize:
    """Return what a row takes of a store that is read."""
    size, values = size_of(row.name), 1 + len(row.partitions)
    for entry in row.entries:
        if isinstance(entry, bytes):
            size, values = size + 4 + len(entry), values + 1
        elif isinstance(entry, frozenset):
            size, values = size + sum(map(size_of, entry)), values + max(1, len(entry))
        elif entry is not None:
            sides = [side for side in (entry.least, entry.greatest) if side is not None]
            size, values = size + sum(map(size_of, sides)), values + 2
    return RowSize(size, values)


def size_of(value: Value) -> int:
    """Return what a value takes of a store, in bytes, rounded up."""
    return 16 if not isinstance(value, (str, bytes)) else 4 + len(value.encode() if isinstance(value, str) else value)
