"""A cache in which each value is made once, however many threads ask, and forgotten after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sparkcrypt.errors import KeyServiceUnavailableError, SparkcryptError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_SWEEP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    value: V = field(repr=False)
    made: float
    expires: float


class ExpiringCache(Generic[K, V]):
    """Makes a value per key in the thread that asks first; others who ask for that key wait, all else goes on.

    A failure is told to those who waited for it and is not kept.

    Args:
        lifetime_seconds: how long a value is kept from the time that it was there; 0 or less keeps none.
        most: how many values are kept; the oldest goes first.
        stale_seconds: how long beyond its lifetime a value serves while a new one cannot be made because the key
            service does not answer; it is asked each time.
    """

    def __init__(self, lifetime_seconds: float, *, most: int = 10_000, stale_seconds: float = 0.0) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._stale_seconds = stale_seconds
        self._most = most
        self._lock = threading.Lock()
        self._values: dict[K, _Kept[V]] = {}
        self._making: dict[K, Future[V]] = {}
        self._next_sweep = time.monotonic() + _SWEEP_SECONDS

    def __repr__(self) -> str:
        return f"ExpiringCache({len(self._values)} values, lifetime_seconds={self._lifetime_seconds:g})"

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K, make: Callable[[], V], *, lifetime_seconds: float | None = None) -> V:
        """Return the value of a key, making it when it is not there or too old.

        Args:
            key: whose value.
            make: makes it.
            lifetime_seconds: how old a value this caller takes, and how long one that is made for him is kept; None:
                the cache's.

        Raises:
            SparkcryptError: what ``make`` raised, in this thread or in the one that this thread waited for.
        """
        lifetime = self._lifetime_seconds if lifetime_seconds is None else lifetime_seconds
        if lifetime <= 0:
            return make()
        with self._lock:
            kept, now = self._values.get(key), time.monotonic()
            if kept is not None and now < min(kept.expires, kept.made + lifetime):
                return kept.value
            pending = self._making.get(key)
            if pending is None:
                mine = self._making[key] = Future()
        if pending is not None:
            return _result_of_another(pending)
        return self._make(key, mine, make, lifetime)

    def items(self) -> list[tuple[K, V]]:
        """Return what is kept now."""
        with self._lock:
            return [(key, kept.value) for key, kept in self._values.items()]

    def forget(self, unwanted: Callable[[K], bool]) -> None:
        """Forget every value whose key is unwanted, stale or not."""
        with self._lock:
            for key in list(filter(unwanted, self._values)):
                del self._values[key]

    def _make(self, key: K, mine: Future[V], make: Callable[[], V], lifetime_seconds: float) -> V:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
                kept = self._stale(key, error, lifetime_seconds)
            if kept is not None:
                mine.set_result(kept.value)
                return kept.value
            mine.set_exception(error)
            raise
        with self._lock:
            now = time.monotonic()
            self._sweep(now)
            self._values.pop(key, None)  # put at the end, as the newest
            self._values[key] = _Kept(value, now, now + lifetime_seconds)
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]
            del self._making[key]
        mine.set_result(value)
        return value

    def _stale(self, key: K, error: BaseException, lifetime_seconds: float) -> _Kept[V] | None:
        """Return what serves in place of a value that could not be made now, None when nothing may."""
        kept = self._values.get(key)
        if kept is None or not isinstance(error, KeyServiceUnavailableError):
            return None
        ended = min(kept.expires, kept.made + lifetime_seconds)
        return kept if time.monotonic() < ended + self._stale_seconds else None

    def _sweep(self, now: float) -> None:
        """Forget what is too old, now and then: keys must not stay in memory for as long as the process."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        for key in [key for key, kept in self._values.items() if kept.expires + self._stale_seconds <= now]:
            del self._values[key]


def _result_of_another(pending: Future[V]) -> V:
    """Wait for another thread; its error is raised anew, since one exception object cannot serve two tracebacks."""
    try:
        return pending.result()
    except SparkcryptError as error:
        raise type(error)(*error.args) from error
