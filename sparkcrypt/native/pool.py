"""Carries out orders in processes of this machine, the largest files first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from sparkcrypt.native.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.native.places import Settings
from sparkcrypt.native.work import rewrite


def rewrite_all(
    orders: Sequence[FileOrder], keys: KeySettings, settings: Settings, *, processes: int
) -> Iterator[FileOutcome]:
    """Yield the outcome of each order as it is done.

    Processes, not threads: pages are small, and AES of small pages gets slower on two threads.

    Args:
        orders: those of large files first.
        keys: where data keys come from.
        settings: how to reach the files.
        processes: how many files at once; 1 works in this process.
    """
    if processes == 1 or len(orders) == 1:
        for order in orders:
            yield rewrite(order, keys, settings)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(orders)), mp_context=context) as pool:
        waiting = [pool.submit(rewrite, order, keys, settings) for order in orders]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
