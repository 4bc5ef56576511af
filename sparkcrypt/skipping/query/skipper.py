"""Determines with a store which files a query with a predicate need not open.

The result for an object is whether some row may make a predicate true, and whether some row may make it false.  This
suffices for AND, OR and NOT: ``NOT p`` may be true if ``p`` may be false, and for a null a comparison is neither.
A predicate is compiled once, and for each object only the indexes that the result needs are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import object_name
from sparkcrypt.skipping.query.leaf import Answer, Column, Filter, Known, refute_leaf
from sparkcrypt.skipping.query.predicate import And, Not, Or, Predicate, Unsupported
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts

_Names: TypeAlias = "tuple[str, ...]"
_RefuteRow: TypeAlias = Callable[[int], "_Names | None"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A file that a query listed: its path, modification time (milliseconds since 1970), and length in bytes."""

    path: str
    modified_ms: int
    length: int


class Skipper:
    """Determines which files a query with a predicate need not open.

    Args:
        store: the store, as `read_store` reads it.
        objects: object -> its facts when it was indexed.
        types: column -> its Spark type in the table, for columns whose indexes do not contain it.
    """

    def __init__(
        self, store: Store, objects: Mapping[str, ObjectFacts], types: Mapping[str, str] | None = None
    ) -> None:
        self._columns = _columns(store, types or {})
        self._rows: dict[str, list[int]] = {}
        for row, name in enumerate(store.objects):
            self._rows.setdefault(name, []).append(row)
        self._objects, self._count = objects, len(store.objects)

    def name_indexes(self, files: Iterable[Listed], predicate: Predicate) -> Iterator[tuple[str, ...] | None]:
        """Yield for each file the indexes that exclude it (``column kind``, sorted); None if it must be opened.

        A file is skipped only if it is the indexed one, by name, modification time and length, and none of its rows
        can make the predicate true.
        """
        refute = self._refute(predicate, of=True)
        return _sort_names(self._refute_file(file, refute) for file in files)

    def name_rows(self, predicate: Predicate) -> Iterator[tuple[str, ...] | None]:
        """Yield for each row of the store the indexes that exclude its object, or None; files are not compared."""
        return _sort_names(map(self._refute(predicate, of=True), range(self._count)))

    def answer(self, row: int, predicate: Predicate) -> Answer:
        """Return whether the rows of one object of the store may make a predicate true, or false."""
        return Answer(*(self._refute(predicate, of=of)(row) is None for of in (True, False)))

    def _refute_file(self, file: Listed, refute: _RefuteRow) -> _Names | None:
        name = object_name(file.path, file.modified_ms)
        facts, rows = self._objects.get(name), self._rows.get(name)
        if facts is None or not rows or facts.length != file.length:
            return None
        found: _Names = ()
        for row in rows:
            names = refute(row)
            if names is None:
                return None
            found = found + names if found else names
        return found

    def _refute(self, predicate: Predicate, *, of: bool) -> _RefuteRow:
        """Return a function that finds indexes by which no row of an object can make a predicate ``of``, true or false.

        The function returns None if some row may.  A conjunction cannot be true if one part cannot, and cannot be false
        if no part can; a disjunction is the reverse.
        """
        match predicate:
            case And(parts) | Or(parts):
                inner = [self._refute(part, of=of) for part in parts]
                return partial(_refute_by_one if isinstance(predicate, And) is of else _refute_by_all, inner)
            case Not(part):
                return self._refute(part, of=not of)
            case Unsupported():
                return _refute_nothing
            case _:
                column = self._columns.get(predicate.column)
                if column is None:
                    return _refute_nothing
                kinds = {kind: (f"{predicate.column} {kind}",) for kind in (*column.names, "partition")}
                refute = refute_leaf(column, predicate, of=of)
                return lambda row: None if (kind := refute(row)) is None else kinds[kind]


def _sort_names(found: Iterable[_Names | None]) -> Iterator[_Names | None]:
    known = dict[_Names, _Names]()
    for names in found:
        if names is not None and names not in known:
            known[names] = tuple(sorted(set(names)))
        yield None if names is None else known[names]


def _refute_nothing(_: int) -> _Names | None:
    return None


def _refute_by_one(parts: Sequence[_RefuteRow], row: int) -> _Names | None:
    for part in parts:
        names = part(row)
        if names is not None:
            return names
    return None


def _refute_by_all(parts: Sequence[_RefuteRow], row: int) -> _Names | None:
    found: _Names = ()
    for part in parts:
        names = part(row)
        if names is None:
            return None
        found += names
    return found


def _columns(store: Store, types: Mapping[str, str]) -> dict[str, Column]:
    """Return column -> its entries in the store; columns whose indexes have different types are left out."""
    kinds: dict[str, set[str]] = {column: {kind} for column, kind in types.items()}
    held: dict[str, list[tuple[str, tuple[Known | None, ...]]]] = {}
    for index in store.indexes:
        if index.unused is None:
            (column,) = index.index.columns
            entries = tuple([Filter(e) if isinstance(e, bytes) else e for e in index.entries])
            held.setdefault(column, []).append((index.index.kind, entries))
            if index.index.column_type is not None:
                kinds.setdefault(column, set()).add(index.index.column_type)
    found = {
        column: Column(
            next(iter(kinds[column])),
            tuple(entries for _, entries in indexes),
            names=tuple(name for name, _ in indexes),
        )
        for column, indexes in held.items()
        if len(kinds.get(column, ())) == 1
    }
    for partition, values in store.partitions:
        if partition.type is not None and partition.column not in held:
            found[partition.column] = Column(partition.type, partition=values)
    return found
