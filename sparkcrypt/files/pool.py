"""Carries out orders in processes of this machine, the largest files first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from sparkcrypt.errors import SparkcryptError
from sparkcrypt.files.open_places import Settings
from sparkcrypt.files.orders import FileOutcome, KeySettings, Order
from sparkcrypt.files.rewrite import failure, rewrite
from sparkcrypt.text import clean_log_lines


def rewrite_all(
    orders: Sequence[Order], keys: KeySettings, settings: Settings, *, processes: int
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
    with ProcessPoolExecutor(min(processes, len(orders)), context, clean_log_lines) as pool:
        waiting: dict[Future[FileOutcome], Order] = {}
        try:
            for order in orders:
                waiting[_submit_order(pool, order, keys, settings)] = order
            for done in as_completed(waiting):
                yield _outcome(done, waiting[done])
        finally:
            pool.shutdown(cancel_futures=True)


def _submit_order(
    pool: ProcessPoolExecutor, order: Order, keys: KeySettings, settings: Settings
) -> Future[FileOutcome]:
    try:
        return pool.submit(rewrite, order, keys, settings)
    except BrokenProcessPool as error:  # a process died while orders were being submitted
        failed: Future[FileOutcome] = Future()
        failed.set_exception(error)
        return failed


def _outcome(done: Future[FileOutcome], order: Order) -> FileOutcome:
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, BrokenProcessPool):
        error = SparkcryptError(
            f"{order.source}: was not done, since a process of the work was ended from outside, perhaps for want of "
            "memory; run again for what is missing, with fewer files at once"
        )
    return failure(order, error)
