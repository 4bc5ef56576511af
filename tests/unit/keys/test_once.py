"""The cache of keys: bounded, and each caller gets nothing older than he takes."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkcrypt.errors import KeyServiceUnavailableError
from sparkcrypt.keys.expiring_cache import ExpiringCache


def test_the_oldest_value_goes_first() -> None:
    """A cache holds no more than it may, the newest."""
    cache: ExpiringCache[int, int] = ExpiringCache(60, most=3)
    for number in range(1_001):
        assert cache.get(number, lambda: number) == number  # noqa: B023 - called at once
    assert len(cache) == 3
    assert cache.get(1_000, lambda: -1) == 1_000
    assert cache.get(0, lambda: -1) == -1


def test_a_caller_says_how_old_a_value_may_be() -> None:
    """One cache serves callers who keep keys for different times; none gets an older one than he takes."""
    cache: ExpiringCache[str, int] = ExpiringCache(60)
    numbers = itertools.count()
    assert [cache.get("key", lambda: next(numbers)) for _ in range(2)] == [0, 0]
    time.sleep(0.05)
    assert cache.get("key", lambda: next(numbers), lifetime_seconds=0.01) == 1
    assert cache.get("key", lambda: next(numbers), lifetime_seconds=0) == 2
    time.sleep(0.05)
    assert cache.get("key", lambda: next(numbers)) == 3  # what was made for a short time is kept as long


def _down() -> int:
    raise KeyServiceUnavailableError("down")


def test_an_old_value_serves_while_none_can_be_made() -> None:
    """For the time that is allowed beyond its lifetime, and only where what makes values does not answer."""
    cache: ExpiringCache[str, int] = ExpiringCache(0.02, stale_seconds=0.2)
    assert cache.get("key", lambda: 1) == 1
    time.sleep(0.03)
    assert cache.get("key", _down) == 1
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 // 0)
    with pytest.raises(KeyServiceUnavailableError):
        cache.get("key", _down, lifetime_seconds=0)
    time.sleep(0.2)
    with pytest.raises(KeyServiceUnavailableError):
        cache.get("key", _down)


def test_a_forgotten_value_serves_no_more() -> None:
    """What is known to be gone serves neither in its lifetime nor beyond it."""
    cache: ExpiringCache[str, int] = ExpiringCache(60, stale_seconds=60)
    assert (cache.get("gone", lambda: 1), cache.get("kept", lambda: 2)) == (1, 2)
    cache.forget(lambda key: key == "gone")
    assert cache.items() == [("kept", 2)]
    with pytest.raises(KeyServiceUnavailableError):
        cache.get("gone", _down)


def test_a_value_that_was_being_made_when_it_was_forgotten_is_not_kept() -> None:
    """Its caller gets it, who asked before; whoever asks afterwards neither waits for it nor gets it."""
    cache: ExpiringCache[str, int] = ExpiringCache(60, stale_seconds=60)
    begun, forgotten = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert forgotten.wait(30)
        return 1

    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(cache.get, "key", slow)
        assert begun.wait(30)
        cache.forget(lambda key: key == "key")
        try:
            assert pool.submit(cache.get, "key", lambda: 2).result(5) == 2
        finally:
            forgotten.set()
        assert before.result() == 1
    assert cache.items() == [("key", 2)]


def test_a_value_is_forgotten_while_its_own_thread_makes_it() -> None:
    """A key service that denies a key has it forgotten before its error, or an answer on its way, is there."""
    cache: ExpiringCache[str, int] = ExpiringCache(60)

    def make(value: int) -> int:
        cache.forget(lambda key: key == "key")
        return 1 // value

    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: make(0))
    assert cache.get("key", lambda: make(1)) == 1
    assert len(cache) == 0
