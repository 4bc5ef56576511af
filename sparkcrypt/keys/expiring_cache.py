"""A cache whose values expire, and are made once however many threads ask for them."""

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
    """A cache that makes each value in the first thread that asks; other threads wait only for the same key.

    A failure is raised in each thread that waited for it and is not cached.

    Args:
        lifetime_seconds: how long a value is kept after it was made; 0 or less keeps none.
        most: the maximum number of values; the oldest is removed first.
        stale_seconds: how long beyond its lifetime a value is used while the key service does not answer, so that a new
            one cannot be made; the key service is asked each time.
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
        """Return the value of a key, making it if it is missing or too old.

        Args:
            key: the key of the value.
            make: makes the value.
            lifetime_seconds: the greatest age of a value that the caller accepts, and how long a value that this call
                makes is kept; None: the cache's lifetime.

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
            try:
                return pending.result()
            except SparkcryptError as error:  # one exception object cannot have two tracebacks
                raise type(error)(*error.args) from error
        return self._make(key, mine, make, lifetime)

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and values that the cache contains now."""
        with self._lock:
            return [(key, kept.value) for key, kept in self._values.items()]

    def forget(self, unwanted: Callable[[K], bool]) -> None:
        """Forget every value whose key is unwanted, stale values too.

        One that is being made now goes to the callers who wait for it, is not kept, and no later caller gets it.
        """
        with self._lock:
            for kept in (self._values, self._making):
                for key in list(filter(unwanted, kept)):
                    del kept[key]

    def _make(self, key: K, mine: Future[V], make: Callable[[], V], lifetime_seconds: float) -> V:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                self._end(key, mine)
                kept = self._find_stale_value(key, error, lifetime_seconds)
            if kept is not None:
                mine.set_result(kept.value)
                return kept.value
            mine.set_exception(error)
            raise
        with self._lock:
            if self._end(key, mine):
                self._keep(key, value, lifetime_seconds)
        mine.set_result(value)
        return value

    def _end(self, key: K, mine: Future[V]) -> bool:
        """End the making of a value; return whether it may be kept: it was not forgotten meanwhile."""
        if self._making.get(key) is not mine:
            return False
        del self._making[key]
        return True

    def _keep(self, key: K, value: V, lifetime_seconds: float) -> None:
        now = time.monotonic()
        self._sweep(now)
        self._values.pop(key, None)  # put at the end, as the newest
        self._values[key] = _Kept(value, now, now + lifetime_seconds)
        while len(self._values) > self._most:
            del self._values[next(iter(self._values))]

    def _find_stale_value(self, key: K, error: BaseException, lifetime_seconds: float) -> _Kept[V] | None:
        """Return the stale value to use in place of one that could not be made now, or None."""
        kept = self._values.get(key)
        if kept is None or not isinstance(error, KeyServiceUnavailableError):
            return None
        ended = min(kept.expires, kept.made + lifetime_seconds)
        return kept if time.monotonic() < ended + self._stale_seconds else None

    def _sweep(self, now: float) -> None:
        """Forget expired values at intervals, so that keys do not stay in memory for the life of the process."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        for key in [key for key, kept in self._values.items() if kept.expires + self._stale_seconds <= now]:
            del self._values[key]
