"""Rows of a store, one for each object: splits a store into rows, joins rows to a store, and measures a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sparkcrypt.skipping.format.convert_values import Value
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import BLOOM
from sparkcrypt.skipping.format.store import UNKNOWN, Entry


class Row(NamedTuple):
    """A store's row for one object: values of partition columns and entries of indexes, in the store's order."""

    name: str
    partitions: tuple[object, ...]
    entries: tuple[Entry | None, ...]


class RowSize(NamedTuple):
    """The size of a row when a store is read: approximate decompressed bytes, and number of values."""

    bytes: int
    values: int


def rows_of(store: Store) -> Iterator[Row]:
    """Yield the rows of a store; all its indexes must have been read."""
    partitions = [values for _, values in store.partitions]
    indexes = [held.entries for held in store.indexes]
    for number, name in enumerate(store.objects):
        yield Row(name, tuple([of[number] for of in partitions]), tuple([of[number] for of in indexes]))


def with_rows(shape: Store, rows: Sequence[Row]) -> Store:
    """Return a store with the partition columns and indexes of another one and these rows."""
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
    """Tell whether an object's bounds, values and partitions are known; its Bloom filters may be missing."""
    return UNKNOWN not in row.partitions and all(
        entry is not None or held.index.kind == BLOOM for entry, held in zip(row.entries, shape.indexes, strict=True)
    )


def measure_row(row: Row) -> RowSize:
    """Return the size of a row when the store is read."""
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
    """Return the size of a value in a store in bytes, rounded up."""
    return 16 if not isinstance(value, (str, bytes)) else 4 + len(value.encode() if isinstance(value, str) else value)
