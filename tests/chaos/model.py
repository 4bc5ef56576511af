"""Which rows must be there: what writers did, one after the other in each partition, and nothing that drivers do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

Partition = int | None
"""The value of ``p``; None is a table without partitions as a whole."""
ADDING = {"insert", "killed insert", "insert across a swap"}
"""Writes that take no row away."""


@dataclass(slots=True)
class Rows:
    """The rows of a partition: those that must be there once, and those of failed writes with how often they may be.

    Where a person has decided a problem, each row must be there as often as it was in the folder that he kept.
    """

    sure: set[int] = field(default_factory=set)
    maybe: dict[int, int] = field(default_factory=dict)
    decided: Counter[int] | None = None

    def doubt(self, ids: Iterable[int], times: int = 1) -> None:
        """Make rows such as may be there up to so many times, or not at all."""
        for row_id in ids:
            self.maybe[row_id] = max(times, self.maybe.get(row_id, 0))
            self.sure.discard(row_id)


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
        self._settled: dict[Partition, frozenset[int]] = {}
        self._begun: dict[Partition, set[str]] = {}
        self._questions: dict[Partition, int] = {}
        self._aside: dict[Partition, set[int]] = {}
        self._mutex = threading.Lock()

    def settle(self) -> None:
        """Take what is there now for what readers must find as long as nobody but drivers changes a partition."""
        with self._mutex:
            self._settled = {p: frozenset(rows.sure) for p, rows in self._partitions.items() if not rows.maybe}
            self._begun.clear()

    def begins(self, partition: Partition, kind: str) -> int:
        """Take note that a write begins; return what `ends` asks for."""
        with self._mutex:
            self._begun.setdefault(partition, set()).add(kind)
            return self._questions.get(partition, 0)

    def ends(self, partition: Partition, begun: int) -> None:
        """Take note that it has ended: where a person decided what to keep meanwhile, nobody knows what came of it."""
        with self._mutex:
            asked = self._questions.get(partition, 0) != begun
        if asked:
            self.question(partition)

    def question(self, partition: Partition) -> None:
        """Take note that a person decides what to keep of a partition while others write."""
        with self._mutex:
            self._questions[partition] = self._questions.get(partition, 0) + 1
            self._begun.setdefault(partition, set()).add("resolve")
            rows = self._of(partition)
            rows.doubt([*rows.sure, *rows.maybe], times=2)

    def decide(self, partition: Partition, ids: Counter[int]) -> None:
        """Take note of what a person kept while nobody wrote."""
        with self._mutex:
            self._partitions[partition] = Rows(decided=ids)

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
                self._aside.pop(partition, None)
            else:
                rows = self._of(partition)
                rows.doubt([*rows.sure, *ids])

    def rewritten(
        self, partition: Partition, without: Collection[int], *, succeeded: bool, aside: bool = False
    ) -> None:
        """Take note of a compaction or an erasure, which may have added its file and removed none, or only some.

        Args:
            partition: which.
            without: the rows that it left out.
            succeeded: whether it ended well.
            aside: it was in a folder that the table had left.  Where all files of the folder in use are rewritten
                before a pass has looked, nobody can tell that from an overwrite, which removes the old files too.
        """
        with self._mutex:
            rows = self._of(partition)
            if aside and succeeded:
                self._aside.setdefault(partition, set()).update(without)
            elif not aside:
                rows.doubt(self._aside.pop(partition, ()))
            if succeeded:
                rows.sure.difference_update(without)
                for row_id in without:
                    rows.maybe.pop(row_id, None)
            else:
                rows.doubt([*rows.sure, *rows.maybe], times=2)

    def all_replaced(self, ids: Mapping[Partition, Collection[int]], *, succeeded: bool) -> None:
        """Take note of what overwrote the whole table."""
        for partition in {*self._partitions, *ids}:
            self.replaced(partition, ids.get(partition, ()), succeeded=succeeded)

    def judge_read(self, found: Iterable[tuple[int, str, Partition]]) -> list[Wrong]:
        """Hold what a reader saw while others were at work against what was there before they began.

        Partitions in which anybody but drivers has begun anything but an INSERT are left out.
        """
        counts: dict[Partition, Counter[int]] = {}
        wrong: list[Wrong] = []
        for row_id, email, partition in found:
            counts.setdefault(partition, Counter())[row_id] += 1
            if email != f"CANARY-{row_id}":
                wrong.append(Wrong("changed", partition, (row_id, email)))
        with self._mutex:
            quiet = {p: ids for p, ids in self._settled.items() if self._begun.get(p, set()) <= ADDING}
        for partition, ids in quiet.items():
            seen = counts.get(partition, Counter())
            kinds = {
                "not seen": [row_id for row_id in ids if not seen[row_id]],
                "seen twice": [i for i in seen if seen[i] > 1],
            }
            wrong.extend(Wrong(kind, partition, tuple(sorted(rows))) for kind, rows in kinds.items() if rows)
        return wrong

    def judge(self, found: Iterable[tuple[int, str, Partition]], reported: Collection[Partition]) -> list[Wrong]:
        """Hold what the table says against what must be there.

        Args:
            found: each row's id, email and partition.
            reported: partitions of which the tool says itself that their rows are in question.
        """
        counts: dict[Partition, Counter[int]] = {}
        wrong: list[Wrong] = []
        for row_id, email, partition in found:
            counts.setdefault(partition, Counter())[row_id] += 1
            if email != f"CANARY-{row_id}":
                wrong.append(Wrong("changed", partition, (row_id, email)))
        for partition in sorted({*counts, *self._partitions} - set(reported), key=str):
            wrong.extend(_judged(partition, self._of(partition), counts.get(partition, Counter())))
        return wrong

    def _of(self, partition: Partition) -> Rows:
        return self._partitions.setdefault(partition, Rows())


def _judged(partition: Partition, rows: Rows, counts: Counter[int]) -> Iterable[Wrong]:
    most = {**rows.maybe, **dict.fromkeys(rows.sure, 1)} if rows.decided is None else dict(rows.decided)
    kinds = {
        "lost": [row_id for row_id in rows.sure if not counts[row_id]]
        + [row_id for row_id, count in (rows.decided or {}).items() if counts[row_id] < count],
        "doubled": [row_id for row_id, count in counts.items() if count > most.get(row_id, 0) > 0],
        "came back": [row_id for row_id in counts if row_id not in most],
    }
    for kind, ids in kinds.items():
        if ids:
            yield Wrong(kind, partition, tuple(sorted(ids)))
