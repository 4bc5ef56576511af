"""A call that ends in time, whatever it waits for: libraries bound single reads and tries, not the whole of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

T = TypeVar("T")


def end_in_time(call: Callable[[], T], seconds: float, late: Callable[[], Exception]) -> T:
    """Make a call in a thread of its own, and return what it returns.

    Args:
        call: what is done; after the deadline it goes on by itself, and nobody hears what comes of it.
        seconds: for how long it is waited for.
        late: makes the error for a call that did not end in time.

    Raises:
        Exception: what the call raised, or ``late`` made.
    """
    outcome: Future[T] = Future()
    threading.Thread(target=_run, args=(call, outcome), daemon=True, name="sparkcrypt-key-call").start()
    try:
        return outcome.result(timeout=max(0.0, seconds))
    except FutureTimeoutError as error:
        if outcome.done():
            raise  # the call itself raised it
        raise late() from error


def _run(call: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  # it is raised in the thread that waits
        outcome.set_exception(error)
