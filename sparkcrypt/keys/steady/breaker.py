"""When a key service that keeps failing is not asked at all, and how many retries a process may make."""

from __future__ import annotations

import secrets
import threading
import time

FAILURES = 10
"""So many failures in a row open the breaker."""
PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 60.0
RETRIES_AT_ONCE = 20.0
RETRIES_PER_SECOND = 1.0
_chance = secrets.SystemRandom()


class Breaker:
    """Counts failures in a row; after too many, one call a pause is let through until one succeeds.

    Safe for many threads, and holds no lock while a call is made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until = 0.0
        self._pause = PAUSE_SECONDS

    def seconds_to_wait(self) -> float:
        """Return 0 when a call may be made now, else for how long none is; who gets 0 from an open one probes."""
        with self._lock:
            if self._failures < FAILURES:
                return 0.0
            now = time.monotonic()
            if now < self._closed_until:
                return self._closed_until - now
            self._closed_until = now + self._pause  # until the probe has ended, nobody else asks
            return 0.0

    def note_success(self) -> None:
        """Note that the service answered, be it by a refusal."""
        with self._lock:
            self._failures, self._pause = 0, PAUSE_SECONDS

    def note_failure(self) -> None:
        """Note that the service did not answer, or that it cannot serve now."""
        with self._lock:
            self._failures += 1
            if self._failures == FAILURES:
                self._closed_until = time.monotonic() + self._pause
            elif self._failures > FAILURES:
                self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
                self._closed_until = time.monotonic() + self._pause * _chance.uniform(0.8, 1.0)


class RetryBudget:
    """Lets a process make some retries at once and a few a second, so that a service in trouble is not stormed."""

    def __init__(self, at_once: float = RETRIES_AT_ONCE, per_second: float = RETRIES_PER_SECOND) -> None:
        self._lock = threading.Lock()
        self._most, self._per_second = at_once, per_second
        self._left, self._seen = at_once, time.monotonic()

    def take(self) -> bool:
        """Say whether one more retry may be made, and count it."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._most, self._left + (now - self._seen) * self._per_second)
            self._seen = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True
