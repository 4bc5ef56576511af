"""Which rows must be there: what writers did, one after the other in each partition, and nothing that drivers do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

Partition = int | None
"""The value of ``p``; None is a table without partitions as a whole."""


@dataclass(slots=True)
class Rows:
    """The rows of a partition: those that must be there once, and those of failed writes with how often they may be."""

    sure: set[int] = field(default_factory=set)
    maybe: dict[int, int] = field(default_factory=dict)

    def doubt(self, ids: Iterable[int], times: int = 1) -> None:
        """Make rows such as may be there up to so many times, or not at all."""
        for one in ids:
            self.maybe[one] = max(times, self.maybe.get(one, 0))
            self.sure.discard(one)


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is not as it must be: its kind, where, and which rows or files."""

    kind: str
    partition: Partition
    what: tuple[object, ...]

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"kind": self.kind, "partition": self.partition, "what": list(self.what)}


class Model:
    """The rows of a table after each write; a write that failed may have left all, some or nothing of itself."""

    def __init__(self) -> None:
        self._partitions: dict[Partition, Rows] = {}
        self._mutex = threading.Lock()

    def rows(self, partition: Partition) -> list[int]:
        """Return the rows that must be in a partition."""
        with self._mutex:
            return sorted(self._of(partition).sure)

    def added(self, partition: Partition, ids: Collection[int], *, succeeded: bool) -> None:
        """Take note of an INSERT INTO."""
        with self._mutex:
            if succeeded:
                self._of(partition).sure.update(ids)
            else:
                self._of(partition).doubt(ids)

    def replaced(self, partition: Partition, ids: Collection[int], *, succeeded: bool) -> None:
        """Take note of an overwrite; of a DROP or TRUNCATE where there are no ids."""
        with self._mutex:
            if succeeded:
                self._partitions[partition] = Rows(set(ids))
            else:
                rows = self._of(partition)
                rows.doubt([*rows.sure, *ids])

    def rewritten(self, partition: Partition, without: Collection[int], *, succeeded: bool) -> None:
        """Take note of a compaction or an erasure, which may have added its file and removed none, or only some."""
        with self._mutex:
            rows = self._of(partition)
            if succeeded:
                rows.sure.difference_update(without)
                for one in without:
                    rows.maybe.pop(one, None)
            else:
                rows.doubt([*rows.sure, *rows.maybe], times=2)

    def all_replaced(self, ids: Mapping[Partition, Collection[int]], *, succeeded: bool) -> None:
        """Take note of what overwrote the whole table."""
        for partition in {*self._partitions, *ids}:
            self.replaced(partition, ids.get(partition, ()), succeeded=succeeded)

    def judge(self, found: Iterable[tuple[int, str, Partition]], reported: Collection[Partition]) -> list[Wrong]:
        """Hold what the table says against what must be there.

        Args:
            found: each row's id, email and partition.
            reported: partitions of which the tool says itself that their rows are in question.
        """
        counts: dict[Partition, Counter[int]] = {}
        wrong: list[Wrong] = []
        for one, email, partition in found:
            counts.setdefault(partition, Counter())[one] += 1
            if email != f"CANARY-{one}":
                wrong.append(Wrong("changed", partition, (one, email)))
        for partition in sorted({*counts, *self._partitions} - set(reported), key=str):
            wrong.extend(_judged(partition, self._of(partition), counts.get(partition, Counter())))
        return wrong

    def _of(self, partition: Partition) -> Rows:
        return self._partitions.setdefault(partition, Rows())


def _judged(partition: Partition, rows: Rows, counts: Counter[int]) -> Iterable[Wrong]:
    most = {**rows.maybe, **dict.fromkeys(rows.sure, 1)}
    kinds = {
        "lost": [one for one in rows.sure if not counts[one]],
        "doubled": [one for one, count in counts.items() if count > most.get(one, 0) > 0],
        "came back": [one for one in counts if one not in most],
    }
    for kind, ids in kinds.items():
        if ids:
            yield Wrong(kind, partition, tuple(sorted(ids)))
