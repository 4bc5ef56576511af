"""A write that is made to meet a swap: it has begun in the old folder, a pass swaps, and only then may it go on."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.chaos.actions import REACHED
from tests.chaos.draw import Write
from tests.chaos.model import Partition
from tests.chaos.site import Site
from tests.chaos.workers import ANSWER_SECONDS, WorkerDiedError, WorkerError

_REACH_SECONDS, _SWAP_SECONDS, _PASSES = 40.0, 45.0, 4


def cross(site: Site, write: Write) -> None:
    """Let a writer begin, a pass swap its unit, and the writer go on; tell the model what became of it.

    Args:
        site: of the round; nobody else writes meanwhile.
        write: its kind says which writer it is.
    """
    began, p = time.monotonic(), _partition(site, write)
    error = (
        site.retag("fin" if site.tagged == "pii" else "pii") if p is not None or not site.plan.partitions else "none"
    )
    if error is not None:
        site.note(write.kind, partition=p, error=error)
        return
    before, ids, gate = site.model.begins(p, write.kind), site.new_ids(2), site.gate()
    place, found = _place(site, p), None
    writing = _begun(site, write, p, ids, gate)
    try:
        if reached(gate, writing):
            _swap(site, p, place)
    finally:
        met = place is not None and _place(site, p) not in (None, place)
        gate.touch()
    try:
        found = writing.result(ANSWER_SECONDS)
    except (WorkerError, WorkerDiedError, TimeoutError) as failed:
        error = f"{type(failed).__name__}: {str(failed)[:600]}"
    if met and write.kind.startswith("erasure") and error is None:
        site.model.rewritten(p, found or [], succeeded=True, aside=True)
    else:
        _tell(site, write, p, ids, found, succeeded=error is None)
    site.model.ends(p, before)
    site.note(write.kind, partition=p, met=met, took=round(time.monotonic() - began, 2), error=error)
    if met:
        site.note(f"{write.kind}: met")


def reached(gate: Path, writing: Future[Any]) -> bool:
    """Wait until a writer waits at its gate; say whether it does, since it may have ended instead."""
    end, there = time.monotonic() + _REACH_SECONDS, Path(f"{gate}{REACHED}")
    while not there.exists() and not writing.done() and time.monotonic() < end:
        time.sleep(0.05)
    return there.exists()


def _partition(site: Site, write: Write) -> Partition:
    """Return a partition that has rows; None of a table without partitions, and where none has any."""
    wanted = [write.partition, *range(site.plan.partitions)] if site.plan.partitions else []
    return next((p for p in wanted if site.model.rows(p)), None)


def _begun(site: Site, write: Write, p: Partition, ids: list[int], gate: Path) -> Future[Any]:
    where = {"table": site.table, "partition": p, "gate": str(gate)}
    writer = site.world.writer
    if write.kind.startswith("insert"):
        return writer.send("insert", **where, ids=ids)
    if write.kind.startswith("overwrite"):
        return writer.send("insert", **where, ids=ids, verb="OVERWRITE", dynamic=p is not None)
    if write.kind.startswith("compaction"):
        return writer.send("rewrite", **where, without=[], adds_first=write.part < 0.5)
    return writer.send("erase_file", **where)


def _swap(site: Site, p: Partition, place: tuple[str, int] | None) -> None:
    """Run passes until the unit is elsewhere; another driver may hold the table, or be the one that swaps it."""
    end = time.monotonic() + _SWAP_SECONDS
    driver = site.world.drivers.take()
    try:
        for number in range(_PASSES):
            time.sleep(1.0 * bool(number))
            if time.monotonic() > end or _place(site, p) != place:
                break
            done = site.command(driver, "backfill", "--table", site.table)
            site.note("pass under a writer", driver=driver.name, code=done["code"])
    except (WorkerError, WorkerDiedError, TimeoutError) as error:
        site.note("pass under a writer", driver=driver.name, ended=f"{type(error).__name__}: {error}")
    finally:
        site.world.drivers.give_back(driver)


def _place(site: Site, p: Partition) -> tuple[str, int] | None:
    """Return where a unit is: its folder and that folder's number, which a swap by renames changes."""
    try:
        folder = site.world.writer.call("folder", table=site.table, partition=p)
        return folder, Path(folder).stat().st_ino
    except (WorkerError, WorkerDiedError, TimeoutError, OSError):
        return None


def _tell(site: Site, write: Write, p: Partition, ids: list[int], found: Any, *, succeeded: bool) -> None:
    model = site.model
    if write.kind.startswith("insert"):
        model.added(p, ids, succeeded=succeeded)
    elif write.kind.startswith("overwrite"):
        model.replaced(p, ids, succeeded=succeeded)
    else:
        erased = found if write.kind.startswith("erasure") and succeeded else []
        model.rewritten(p, erased, succeeded=succeeded)
