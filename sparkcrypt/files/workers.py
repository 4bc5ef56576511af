"""Carries out orders: in processes of this machine, or on Spark's executors (``DataFrame.mapInArrow``)."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from sparkcrypt.errors import SparkcryptError
from sparkcrypt.files.open_places import Settings
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.parquet import folders_synced_once
from sparkcrypt.files.rewrite import failure, rewrite
from sparkcrypt.log_lines import LogSettings

FILES_A_TASK = 50
BYTES_A_TASK = 16 << 20
"""A task costs as much as some tens of small files, so only a file that is not small gets a task of its own."""


def share_out(lengths: Sequence[int], most_files: int | None = None) -> list[range]:
    """Return the places of each task's files: consecutive ones, up to some files and `BYTES_A_TASK` bytes.

    Args:
        lengths: of the files, in bytes, as far as they decide how long the work on each takes.
        most_files: how many files a task has at most; None stands for `FILES_A_TASK`.
    """
    most, tasks = most_files or FILES_A_TASK, list[range]()
    start, total = 0, 0
    for place, length in enumerate(lengths):
        if place > start and (place - start == most or total + length > BYTES_A_TASK):
            tasks.append(range(start, place))
            start, total = place, 0
        total += length
    return [*tasks, range(start, len(lengths))] if lengths else []


def rewrite_packed(keys: str, settings: Settings, orders: Sequence[str]) -> list[str]:
    """Carry out the orders of one task, and return their outcomes; the targets' folders are synced once, before that.

    Args:
        keys: where data keys come from, as JSON.
        settings: how to reach the files.
        orders: the orders, as JSON.
    """
    made = [FileOrder.from_dict(json.loads(order)) for order in orders]
    return [outcome.to_json() for outcome in _carry_out(made, KeySettings.from_json(keys), settings)]


def _carry_out(orders: Sequence[FileOrder], keys: KeySettings, settings: Settings) -> list[FileOutcome]:
    try:
        with folders_synced_once():
            return [rewrite(order, keys, settings) for order in orders]
    except OSError as error:
        return [failure(order, error) for order in orders]


def rewrite_all(
    orders: Sequence[FileOrder], keys: KeySettings, settings: Settings, *, processes: int
) -> Iterator[FileOutcome]:
    """Yield the outcome of each order as it is done; if a process dies, each file not done yet gets an error outcome.

    It uses processes, not threads: pages are small, and AES of small pages gets slower on two threads.

    Args:
        orders: sorted by file size, largest first.
        keys: where data keys come from.
        settings: how to reach the files.
        processes: how many files are rewritten concurrently; 1 works in this process.
    """
    if processes == 1 or len(orders) == 1:
        for order in orders:
            yield rewrite(order, keys, settings)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(orders)), context, LogSettings().apply) as pool:
        waiting: dict[Future[FileOutcome], FileOrder] = {}
        try:
            for order in orders:
                waiting[_submit_order(pool, order, keys, settings)] = order
            for done in as_completed(waiting):
                yield _outcome(done, waiting[done])
        finally:
            pool.shutdown(cancel_futures=True)


def _submit_order(
    pool: ProcessPoolExecutor, order: FileOrder, keys: KeySettings, settings: Settings
) -> Future[FileOutcome]:
    try:
        return pool.submit(rewrite, order, keys, settings)
    except BrokenProcessPool as error:  # a process died while orders were being submitted
        failed: Future[FileOutcome] = Future()
        failed.set_exception(error)
        return failed


def _outcome(done: Future[FileOutcome], order: FileOrder) -> FileOutcome:
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, BrokenProcessPool):
        error = SparkcryptError(
            f"{order.source}: was not done, since a process of the work was ended from outside, perhaps for want of "
            "memory; run again for what is missing, with fewer files at once"
        )
    return failure(order, error)
