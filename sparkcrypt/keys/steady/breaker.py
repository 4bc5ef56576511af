"""A circuit breaker for a key service that keeps failing, and a limit of the retries that a process may make."""

from __future__ import annotations

import secrets
import threading
import time

FAILURES = 10
"""Number of failures in a row that open the breaker."""
PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 60.0
RETRIES_AT_ONCE = 20.0
RETRIES_PER_SECOND = 1.0
_chance = secrets.SystemRandom()


class Breaker:
    """A circuit breaker: after too many failures in a row, it allows one call per pause until a call succeeds.

    Safe for many threads, and holds no lock while a call is made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until = 0.0
        self._pause = PAUSE_SECONDS

    def seconds_to_wait(self) -> float:
        """Return 0 if a call may be made now, else the seconds until one may; an open breaker allows a probe by 0."""
        with self._lock:
            if self._failures < FAILURES:
                return 0.0
            now = time.monotonic()
            if now < self._closed_until:
                return self._closed_until - now
            self._closed_until = now + self._pause  # for this long only the probe may call
            return 0.0

    def note_success(self) -> None:
        """Record that the service answered, even by a refusal."""
        with self._lock:
            self._failures, self._pause = 0, PAUSE_SECONDS

    def note_failure(self) -> None:
        """Record that the service did not answer, or that it cannot serve now."""
        with self._lock:
            self._failures += 1
            if self._failures == FAILURES:
                self._closed_until = time.monotonic() + self._pause
            elif self._failures > FAILURES:
                self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
                self._closed_until = time.monotonic() + self._pause * _chance.uniform(0.8, 1.0)


class RetryBudget:
    """A budget of a process for retries: some at once and then a number per second, to spare a failing service."""

    def __init__(self, at_once: float = RETRIES_AT_ONCE, per_second: float = RETRIES_PER_SECOND) -> None:
        self._lock = threading.Lock()
        self._most, self._per_second = at_once, per_second
        self._left, self._seen = at_once, time.monotonic()

    def take(self) -> bool:
        """Return whether one more retry may be made, and count it."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._most, self._left + (now - self._seen) * self._per_second)
            self._seen = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True
