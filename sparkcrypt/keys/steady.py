"""A guarded key service: calls have a deadline, transient failures are retried, a failing service is not called."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from sparkcrypt.errors import KeyServiceUnavailableError, SparkcryptError
from sparkcrypt.keys.service import DelegatingKeyService, KeyService
from sparkcrypt.policy.key_service import Endurance

FAILURES = 10
"""Number of failures in a row that open the breaker."""
PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 60.0
RETRIES_AT_ONCE = 20.0
RETRIES_PER_SECOND = 1.0
_chance = secrets.SystemRandom()
T = TypeVar("T")
BACKOFF_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 5.0
_READING_VERBS = frozenset({"wrap", "unwrap", "describe", "list_keys", "may"})
_REPEATABLE_VERBS = _READING_VERBS | {"create"}


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


@dataclass(frozen=True, slots=True)
class _Replica:
    service: KeyService
    breaker: Breaker = field(default_factory=Breaker)


class SteadyKeyService(DelegatingKeyService):
    """A key service that passes calls to the first of several equal ones that answers; safe for many threads.

    Calls that read (wrap, unwrap, describe, list, may) go to any of them; calls that change keys go to the first alone,
    so that no two of them create a key with one id.  Refusals are answers and final.  Calls that a repetition could
    change are made once.

    Args:
        services: key services with the same master keys, in order of preference.
        endurance: limits of each call.
    """

    def __init__(self, services: Sequence[KeyService], endurance: Endurance) -> None:
        super().__init__(services[0])
        self.serve_stale_seconds = endurance.serve_stale_seconds
        self._replicas = tuple(_Replica(service) for service in services)
        self._endurance = endurance
        self._budget = RetryBudget()

    def __repr__(self) -> str:
        return f"SteadyKeyService({', '.join(repr(replica.service) for replica in self._replicas)})"

    def _call(self, verb: str, _key_id: str | None, call: Callable[[KeyService], T]) -> T:
        replicas = self._replicas if verb in _READING_VERBS else self._replicas[:1]
        retries = self._endurance.max_retries if verb in _REPEATABLE_VERBS and self.retries_itself is False else 0
        end = time.monotonic() + self._endurance.deadline_seconds
        last: KeyServiceUnavailableError | None = None
        for tried in count():
            failure, waits = None, []
            for replica in replicas:
                wait = replica.breaker.seconds_to_wait()
                if wait:
                    waits.append(wait)
                    continue
                try:
                    return self._call_once(replica, call, end)
                except KeyServiceUnavailableError as error:
                    last = failure = error
            if failure is None:
                which = ", ".join(repr(replica.service) for replica in replicas)
                raise KeyServiceUnavailableError(
                    f"{which} failed {FAILURES} times in a row or more, so it is asked again in {min(waits):.0f} s and "
                    "not now; see that it runs and is reachable"
                ) from last
            pause = _chance.uniform(0, min(BACKOFF_SECONDS * 2**tried, BACKOFF_MAX_SECONDS))
            if tried >= retries or time.monotonic() + pause >= end or not self._budget.take():
                if not tried:
                    raise failure
                raise KeyServiceUnavailableError(f"{failure}; this is the answer after {tried} retries") from failure
            time.sleep(pause)
        raise AssertionError("count() ends never")

    def _call_once(self, replica: _Replica, call: Callable[[KeyService], T], end: float) -> T:
        try:
            result = _end_in_time(
                lambda: call(replica.service), end - time.monotonic(), lambda: self._make_late_error(replica.service)
            )
        except KeyServiceUnavailableError:
            replica.breaker.note_failure()
            raise
        except SparkcryptError:
            replica.breaker.note_success()
            raise
        replica.breaker.note_success()
        return result

    def _make_late_error(self, service: KeyService) -> KeyServiceUnavailableError:
        return KeyServiceUnavailableError(
            f"{service!r} did not answer within the {self._endurance.deadline_seconds:g} s that one call may take; see "
            "that it runs and is reachable, or raise deadline_seconds in key_service"
        )


def _end_in_time(call: Callable[[], T], seconds: float, late: Callable[[], Exception]) -> T:
    """Make a call in a separate thread, and return its result: libraries limit only single reads and tries.

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
