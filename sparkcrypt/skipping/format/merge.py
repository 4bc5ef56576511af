"""Merges the files of a store into one table of objects, and splits such a table into rows, one for each object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from sparkcrypt.errors import FormatError, show
from sparkcrypt.skipping.format.convert_values import Value
from sparkcrypt.skipping.format.description import Description, Index, Labels, PartitionColumn
from sparkcrypt.skipping.format.naming import BLOOM
from sparkcrypt.skipping.format.store import NO_KEY, UNKNOWN, Entry, IndexEntries, StorePart

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store:
    """The content of a store.

    Attributes:
        version: version of the specification.
        table: the table's identifier, as the writer recorded it.
        labels: labels of the keys that it was made with, or None.
        objects: the name of each row's object; names that occur twice are counted in ``repeated``.
        partitions: each partition column with its values, in the order of the objects.
        indexes: each index with its entries, in the same order.
        repeated: number of names that occur more than once, as after an interrupted refresh of upstream.
    """

    version: int
    table: str | None
    labels: Labels | None
    objects: tuple[str, ...]
    partitions: tuple[tuple[PartitionColumn, tuple[object, ...]], ...]
    indexes: tuple[IndexEntries, ...]
    repeated: int = 0


def merge_parts(parts: Sequence[StorePart]) -> Store | None:
    """Merge files into a store; return None if a footer is encrypted and no key was given.

    The entries of an index are unknown (None) for the objects of a file that lacks the index.

    Raises:
        FormatError: there is no file, or the files have different versions or tables.
    """
    described = [(part, part.description) for part in parts if part.description is not None]
    if len(described) != len(parts):
        return None
    first = _agree_on_description(described)
    counts = Counter(name for part in parts for name in part.objects)
    return Store(
        first.version,
        first.table,
        first.labels,
        tuple(name for part in parts for name in part.objects),
        tuple(
            (column, _values(column, parts))
            for column in _remove_repeats(description.partitions for _, description in described)
        ),
        tuple(
            _merge_entries(index, parts)
            for index in _remove_repeats(description.indexes for _, description in described)
        ),
        sum(count > 1 for count in counts.values()),
    )


def _agree_on_description(described: Sequence[tuple[StorePart, Description]]) -> Description:
    if not described:
        raise FormatError("the folder holds no file of a store; expected one or more")
    first = described[0][1]
    for part, entry in described:
        if (entry.version, entry.table) != (first.version, first.table):
            raise FormatError(
                f"{part.name}: is of version {entry.version} for {show(entry.table)}; expected {first.version} for "
                f"{show(first.table)}, as {described[0][0].name} has it: put each store into a folder of its own"
            )
    return first


def _remove_repeats(groups: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(entry for group in groups for entry in group))


def _values(column: PartitionColumn, parts: Sequence[StorePart]) -> tuple[object, ...]:
    found: list[object] = []
    for part in parts:
        values = next((values for partition, values in part.partitions if partition == column), None)
        found.extend([UNKNOWN] * len(part.objects) if values is None else values)
    return tuple(found)


def _merge_entries(index: Index, parts: Sequence[StorePart]) -> IndexEntries:
    found: list[Entry | None] = []
    unused: str | None = None
    for part in parts:
        held = next((entry for entry in part.indexes if entry.index == index), None)
        if held is not None and held.unused is not None:
            if held.unused != NO_KEY:
                return IndexEntries(index, unused=held.unused)
            unused = held.unused
        found.extend([None] * len(part.objects) if held is None or held.unused else held.entries)
    return IndexEntries(index, unused=unused) if unused else IndexEntries(index, tuple(found))


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
