"""Answers which files a predicate need not open, going by a store.

`Skipper.answer` says of an object whether some row may make a predicate true, and whether some row may make it false.
That is enough for AND, OR and NOT: ``NOT p`` may be true where ``p`` may be false, and a null makes a comparison
neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import object_name
from sparkcrypt.skipping.query.leaf import (
    ANY,
    Answer,
    Column,
    Filter,
    Known,
    answer_leaf,
    name_deciding_index,
)
from sparkcrypt.skipping.query.predicate import And, Not, Or, Predicate, Unsupported
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as a query has listed it: its path, when it was changed (milliseconds since 1970), and its length."""

    path: str
    modified_ms: int
    length: int


class Skipper:
    """Answers which files a predicate need not open.

    Args:
        store: the store, as `open_store` gave it.
        objects: what its objects were when they were indexed.
        types: column -> its Spark type in the table, for columns whose indexes do not tell it.
    """

    def __init__(
        self, store: Store, objects: Mapping[str, ObjectFacts], types: Mapping[str, str] | None = None
    ) -> None:
        self._columns = _columns(store, types or {})
        self._rows: dict[str, list[int]] = {}
        for row, name in enumerate(store.objects):
            self._rows.setdefault(name, []).append(row)
        self._objects = objects

    def select_files(self, files: Iterable[Listed], predicate: Predicate) -> list[bool]:
        """Tell for each file, in order, whether it must be opened.

        A file is left out only if it is the one that was indexed, by name, time of change and length, and no row of it
        can make the predicate true.
        """
        return [self._is_kept(file, predicate) for file in files]

    def name_indexes(self, file: Listed, predicate: Predicate) -> tuple[str, ...]:
        """Return the indexes by which a file that `select_files` leaves out cannot match: ``column kind``, sorted."""
        rows = self._rows[object_name(file.path, file.modified_ms)]
        return tuple(sorted({name for row in rows for name in self._deciding(row, predicate, of=True)}))

    def answer(self, row: int, predicate: Predicate) -> Answer:
        """Return what a predicate may be over the rows of one object of the store."""
        match predicate:
            case And(parts):
                found = [self.answer(row, part) for part in parts]
                return Answer(all(entry[0] for entry in found), any(answer[1] for answer in found))
            case Or(parts):
                found = [self.answer(row, part) for part in parts]
                return Answer(any(entry[0] for entry in found), all(answer[1] for answer in found))
            case Not(part):
                inner = self.answer(row, part)
                return Answer(inner.may_be_false, inner.may_be_true)
            case Unsupported():
                return ANY
            case _:
                column = self._columns.get(predicate.column)
                return ANY if column is None else answer_leaf(column, row, predicate)

    def _deciding(self, row: int, predicate: Predicate, *, of: bool) -> Iterator[str]:
        """Yield the indexes by which a predicate cannot be ``of``, true or false, for an object of which that holds."""
        match predicate:
            case And(parts) | Or(parts):
                if isinstance(predicate, And) is of:  # one part that cannot be so is enough
                    parts = (next(part for part in parts if not self._may_be(row, part, of=of)),)
                for part in parts:
                    yield from self._deciding(row, part, of=of)
            case Not(part):
                yield from self._deciding(row, part, of=not of)
            case Unsupported():
                return
            case _:
                kind = name_deciding_index(self._columns[predicate.column], row, predicate, of=of)
                yield f"{predicate.column} {kind}"

    def _may_be(self, row: int, predicate: Predicate, *, of: bool) -> bool:
        answer = self.answer(row, predicate)
        return answer.may_be_true if of else answer.may_be_false

    def _is_kept(self, file: Listed, predicate: Predicate) -> bool:
        name = object_name(file.path, file.modified_ms)
        facts, rows = self._objects.get(name), self._rows.get(name)
        if facts is None or not rows or facts.length != file.length:
            return True
        return any(self.answer(row, predicate).may_be_true for row in rows)


def _columns(store: Store, types: Mapping[str, str]) -> dict[str, Column]:
    """Return what is known of each column; two indexes of different types over one say nothing of it."""
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
