"""A cache in which each value is made once, however many threads ask, and forgotten after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from sparkcrypt.errors import SparkcryptError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """Makes a value per key in the thread that asks first; others who ask for that key wait, all else goes on.

    A failure is told to those who waited for it and is not kept.

    Args:
        lifetime_seconds: how long a value is kept from the time that it was there; 0 or less keeps none.
    """

    def __init__(self, lifetime_seconds: float) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._lock = threading.Lock()
        self._values: dict[K, tuple[V, float]] = {}
        self._making: dict[K, Future[V]] = {}
        self._next_sweep = time.monotonic() + lifetime_seconds

    def __repr__(self) -> str:
        return f"ExpiringCache({len(self._values)} values, lifetime_seconds={self._lifetime_seconds:g})"

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, making it when it is not there or too old.

        Raises:
            SparkcryptError: what ``make`` raised, in this thread or in the one that this thread waited for.
        """
        if self._lifetime_seconds <= 0:
            return make()
        with self._lock:
            kept = self._values.get(key)
            if kept is not None and time.monotonic() < kept[1]:
                return kept[0]
            pending = self._making.get(key)
            if pending is None:
                mine = self._making[key] = Future()
        if pending is not None:
            return _result_of_another(pending)
        return self._make(key, mine, make)

    def _make(self, key: K, mine: Future[V], make: Callable[[], V]) -> V:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._lock:
            now = time.monotonic()
            self._sweep(now)
            self._values[key] = (value, now + self._lifetime_seconds)
            del self._making[key]
        mine.set_result(value)
        return value

    def _sweep(self, now: float) -> None:
        """Forget what is too old, at most once a lifetime: keys must not stay in memory for as long as the process."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + self._lifetime_seconds
        for key in [key for key, (_, expires) in self._values.items() if expires <= now]:
            del self._values[key]


def _result_of_another(pending: Future[V]) -> V:
    """Wait for another thread; its error is raised anew, since one exception object cannot serve two tracebacks."""
    try:
        return pending.result()
    except SparkcryptError as error:
        raise type(error)(*error.args) from error
