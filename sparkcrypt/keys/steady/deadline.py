"""A deadline for a whole call: libraries limit only single reads and tries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

T = TypeVar("T")


def end_in_time(call: Callable[[], T], seconds: float, late: Callable[[], Exception]) -> T:
    """Make a call in a separate thread, and return its result.

    Args:
        call: the call; after the deadline it continues in its thread, and its outcome is ignored.
        seconds: how long the caller waits.
        late: makes the error for a call that did not end in time.

    Raises:
        Exception: what ``call`` raised, or ``late`` returned.
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
