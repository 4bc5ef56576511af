"""This project's breaker and retries beside two libraries: time of a call, parallel calls, probes of an open breaker.

Usage: python -m pip install --target FOLDER pybreaker tenacity; PYTHONPATH=FOLDER python -m bench.breakers
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from sparkcrypt.keys.steady import FAILURES, Breaker

CALLS, ROUNDS = 20_000, 5
THREADS, CALL_SECONDS = 8, 0.05
_PAUSE_SECONDS = 0.1


def _time_call(call: Callable[[], object]) -> float:
    """Return the microseconds of a call, the minimum of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - began) / CALLS * 1e6)
    return min(rounds)


def _time_threads(call: Callable[[], object]) -> float:
    """Return the milliseconds that some threads take for one call each."""
    threads = [threading.Thread(target=call) for _ in range(THREADS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - began) * 1e3


class _Down:
    """A service that is down, and counts its calls."""

    def __init__(self) -> None:
        self.asked = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.asked += 1
        time.sleep(CALL_SECONDS)
        raise OSError("down")


def _through(breaker: Breaker, call: Callable[[], object]) -> None:
    """Make a call as guarded key services do, if the breaker lets it through."""
    if breaker.seconds_to_wait():
        return
    try:
        call()
    except OSError:
        breaker.note_failure()
    else:
        breaker.note_success()


def _count_own_probes() -> int:
    breaker, down = Breaker(), _Down()
    for _ in range(FAILURES):
        breaker.note_failure()
    time.sleep(breaker.seconds_to_wait())
    _time_threads(lambda: _through(breaker, down))
    return down.asked


def _count_probes_of_pybreaker(pybreaker: Any) -> int:
    breaker, down = pybreaker.CircuitBreaker(fail_max=1, reset_timeout=_PAUSE_SECONDS), _Down()

    def ask() -> None:
        with suppress(OSError, pybreaker.CircuitBreakerError):
            breaker.call(down)

    ask()
    time.sleep(2 * _PAUSE_SECONDS)
    down.asked = 0
    _time_threads(ask)
    return down.asked


def main() -> None:
    """Measure, and print a line for each."""
    try:
        pybreaker, tenacity = importlib.import_module("pybreaker"), importlib.import_module("tenacity")
    except ImportError as error:
        raise SystemExit(f"{error}; this needs pybreaker and tenacity, which sparkcrypt itself does not") from error
    own, theirs = Breaker(), pybreaker.CircuitBreaker(fail_max=FAILURES)
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_random_exponential(max=5), reraise=True
    )

    def wait() -> None:
        time.sleep(CALL_SECONDS)

    side_by_side = f"{THREADS} calls of {CALL_SECONDS * 1e3:g} ms side by side"
    for name, call in {
        "own breaker": lambda: _through(own, int),
        "pybreaker": lambda: theirs.call(int),
        "tenacity": lambda: retrying(int),
    }.items():
        click.echo(f"{name}: {_time_call(call):.1f} µs a call")
    click.echo(f"own breaker: {side_by_side} in {_time_threads(lambda: _through(own, wait)):.0f} ms")
    click.echo(f"pybreaker: {side_by_side} in {_time_threads(lambda: theirs.call(wait)):.0f} ms")
    click.echo(f"own breaker: {_count_own_probes()} of {THREADS} callers probe a service that is down")
    click.echo(f"pybreaker: {_count_probes_of_pybreaker(pybreaker)} of {THREADS} callers probe a service that is down")


if __name__ == "__main__":
    main()
