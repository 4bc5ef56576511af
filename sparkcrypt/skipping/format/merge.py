"""Merges the files of a store into one table of objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparkcrypt.errors import FormatError, show
from sparkcrypt.skipping.format.description import Description, Index, Labels, PartitionColumn
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
