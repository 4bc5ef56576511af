"""The lanes of writers: each works on partitions of its own, one write after the other, or alone on the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.crossing import cross, reached
from tests.chaos.draw import CROSSING, Write
from tests.chaos.model import Partition
from tests.chaos.site import Site
from tests.chaos.workers import WorkerDiedError, WorkerError


class Writers:
    """Does the writes of a phase, and tells the model what became of them.

    Spark's committer deletes the table's folder ``_temporary`` when a job ends, whoever else writes there: files of a
    second job may be lost without an error.  Two jobs are therefore never at work on a table, other than killed ones.

    Args:
        site: of the round.
        lanes: of the phase.
    """

    def __init__(self, site: Site, lanes: Sequence[Sequence[Write]]) -> None:
        self._site = site
        self._locks, self._victims = [threading.Lock() for _ in lanes], threading.Lock()
        self._committing = threading.Lock()
        self.threads = [
            threading.Thread(target=self._lane, args=(number, lane), daemon=True) for number, lane in enumerate(lanes)
        ]

    def _lane(self, number: int, writes: Sequence[Write]) -> None:
        for write in writes:
            time.sleep(write.after)
            alone = write.kind in ("rename", "add column", "save as table", "retag", *CROSSING)
            with ExitStack() as held:
                for lock in self._locks if alone else [self._locks[number]]:
                    held.enter_context(lock)
                if write.kind in CROSSING:
                    cross(self._site, write)
                elif alone:
                    self._on_table(write)
                elif write.kind != "nothing":
                    self._on_partition(write)

    def _on_partition(self, write: Write) -> None:
        p, site = write.partition, self._site
        begun, before = time.monotonic(), site.model.begins(p, write.kind)
        if write.kind in ("insert", "overwrite", "overwrite dynamic"):
            error = self._insert(p, write)
        elif write.kind in ("killed insert", "killed overwrite"):
            error = self._killed(p, write)
        elif write.kind in ("compact", "erase"):
            error = self._rewrite(p, write)
        elif write.kind == "truncate":
            spec = "" if p is None else f" PARTITION (p = {p})"
            error = self._emptied(p, f"TRUNCATE TABLE {site.table}{spec}")
        elif self._is_late_commit_in_reach(p):  # docs/backfill.md: nobody could tell its files from new ones
            error = "left out, since a late commit is in the folder that would come into use again"
        else:
            error = self._emptied(p, f"ALTER TABLE {site.table} DROP IF EXISTS PARTITION (p = {p})")
            if write.kind == "drop and insert":
                error = error or self._insert(p, write)
            elif not error and write.part < 0.5:
                error = site.attempt("sql", text=f"ALTER TABLE {site.table} ADD IF NOT EXISTS PARTITION (p = {p})")
        site.model.ends(p, before)
        site.note(write.kind, partition=p, took=round(time.monotonic() - begun, 2), error=error)

    def _is_late_commit_in_reach(self, p: Partition) -> bool:
        """Tell whether a partition points elsewhere, and the folder where it would be made anew has files."""
        folders = (self._site.folder / "tables").rglob(f"p={p}")
        left = [folder for folder in folders if ".sparkcrypt" not in folder.parts and any(folder.glob("*.parquet"))]
        try:
            here = self._site.world.writer.call("folder", table=self._site.table, partition=p)
        except (WorkerError, WorkerDiedError, TimeoutError):
            return False
        return bool(left) and Path(here) not in left

    def _insert(self, p: Partition, write: Write) -> str | None:
        site, into = self._site, not write.kind.startswith("overwrite")
        ids = site.new_ids(2)
        with self._committing:
            error = site.attempt(
                "insert",
                table=site.table,
                ids=ids,
                partition=p,
                verb="INTO" if into else "OVERWRITE",
                dynamic=write.kind == "overwrite dynamic",
                seconds=write.seconds,
            )
        tell = site.model.added if into else site.model.replaced
        tell(p, ids, succeeded=error is None)
        return error

    def _killed(self, p: Partition, write: Write) -> str | None:
        """Let a writer of its own begin an INSERT, and kill it while it computes: its folder stays for ever."""
        site, ids, gate = self._site, self._site.new_ids(2), self._site.gate()
        into = write.kind == "killed insert"
        with self._victims:
            victim = site.world.drivers.take()
            try:
                victim.call("configure", policy=str(site.policy))
                rows = {"table": site.table, "ids": ids, "partition": p, "gate": str(gate)}
                writing = victim.send("insert", **rows, verb="INTO" if into else "OVERWRITE", dynamic=p is not None)
                met = reached(gate, writing)
            except (WorkerError, WorkerDiedError, TimeoutError) as error:
                return str(error)[:600]
            finally:
                victim.kill()
                site.world.drivers.give_back(victim)
                # Only a static overwrite takes rows away before it commits.
                tell = site.model.added if into or p is not None else site.model.replaced
                tell(p, ids, succeeded=False)
        return None if met else "it ended before it could be killed"

    def _rewrite(self, p: Partition, write: Write) -> str | None:
        site = self._site
        rows = site.model.rows(p)
        if p is not None and not rows:
            return "nothing there"
        without = rows[: max(1, int(len(rows) * write.part))] if write.kind == "erase" else []
        with self._committing:
            error = site.attempt("rewrite", table=site.table, partition=p, without=without, seconds=write.seconds)
        site.model.rewritten(p, without, succeeded=error is None)
        return error

    def _emptied(self, p: Partition, text: str) -> str | None:
        error = self._site.attempt("sql", text=text)
        if error is not None and "PARTITIONS_NOT_FOUND" in error.upper():
            return None
        self._site.model.replaced(p, (), succeeded=error is None)
        return error

    def _on_table(self, write: Write) -> None:
        site, begun = self._site, time.monotonic()
        site.begun.add(write.kind)
        if write.kind == "rename":
            error = self._renamed()
        elif write.kind == "add column":
            error = site.attempt("sql", text=f"ALTER TABLE {site.table} ADD COLUMNS (extra{site.new_ids(1)[0]} INT)")
        elif write.kind == "retag":
            error = site.retag("fin" if write.part < 0.5 else "pii")
        else:
            error = self._saved_as_table()
        site.note(write.kind, took=round(time.monotonic() - begun, 2), error=error)

    def _renamed(self) -> str | None:
        site = self._site
        name = f"{site.database}.t{site.new_ids(1)[0]}"
        error = site.attempt("sql", text=f"ALTER TABLE {site.table} RENAME TO {name}")
        there = site.attempt("sql", text=f"DESCRIBE TABLE {name}") is None
        site.table = name if error is None or there else site.table
        return error

    def _saved_as_table(self) -> str | None:
        """Overwrite the table, and tag it again, as whoever does that without the extension must."""
        site, plain = self._site, not self._site.plan.partitions
        rows: dict[Partition, list[int]] = {p: site.new_ids(2) for p in ([None] if plain else (0, 1))}
        for p in rows.keys() | set(range(5)):
            site.model.begins(p, "save as table")
        path = f"file:{site.folder}/tables/outside" if site.plan.kind == "external" else None
        kind = "plain" if plain else "partitioned"
        named = {"0" if p is None else str(p): ids for p, ids in rows.items()}
        for pause in (0.0, 3.0, 10.0):  # where it fails half-way the table is gone, so it is tried again
            time.sleep(pause)
            error = site.attempt("save_as_table", table=site.table, rows=named, kind=kind, path=path)
            if error is None:
                break
        site.model.all_replaced(rows, succeeded=error is None)
        return error or site.retag("pii")
