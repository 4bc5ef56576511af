"""The lock of a table: one owner, expiry, takeover, fencing, and no record left that matters not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError, RunConflictError, VerificationError
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.lock import acquire, is_dead, this_process
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from tests.services.installed import ROOT
from tests.unit.backfill.conftest import RUN, TABLE, Clock, Together
from tests.unit.backfill.lock_behaviour import FOLDER, KILLED, RACE, LockBehaviour, take


class TestLocalLock(LockBehaviour):
    """The behaviours of every lock, in a local folder."""


def test_a_renewal_that_comes_too_late_does_not_count(store: LocalStateStore, clock: Clock) -> None:
    """An owner paused inside a renewal finds that its time was over when the record was written."""

    class Slow(LocalStateStore):
        def create(self, name: str, content: bytes) -> bool:
            clock.now += 60 if name.endswith(".1.json") else 0
            return super().create(name, content)

    lock = take(Slow(store._root), clock)
    clock.now += 60
    with pytest.raises(RunConflictError, match="while it was being renewed"):
        lock.renew()
    with pytest.raises(RunConflictError, match="expired"):
        lock.check()


def test_a_renewal_between_listing_and_clock_is_not_overlooked(store: LocalStateStore, clock: Clock) -> None:
    """The time is taken before the records are read, so that who would take over misses no renewal in time."""
    lock = take(store, clock)

    class Paused(LocalStateStore):
        def list(self, prefix: str) -> tuple[str, ...]:
            seen = super().list(prefix)
            clock.now += 30
            return seen

    clock.now += 100
    with pytest.raises(RunConflictError, match="run-1"):
        take(Paused(store._root), clock, "run-2")
    assert lock.token == 1


def test_a_token_that_came_and_went_meanwhile_is_not_taken(store: LocalStateStore, clock: Clock) -> None:
    """A driver paused between listing and creation, while others took and gave back that very token, starts anew."""
    take(store, clock).release()

    class Paused(LocalStateStore):
        def create(self, name: str, content: bytes) -> bool:
            if name.endswith("00000002.json"):
                for run in ("run-2", "run-3"):
                    take(store, clock, run).release()
            return super().create(name, content)

    lock = take(Paused(store._root), clock, "slow")
    assert lock.token == 4
    lock.check()


def test_leaving_the_block_by_an_error_releases_and_lets_the_error_go(store: LocalStateStore, clock: Clock) -> None:
    """The table is free, and the first error is the one that is seen."""
    with pytest.raises(ZeroDivisionError), take(store, clock):
        _ = 1 / 0
    assert take(store, clock, "run-2").token == 2


@pytest.mark.parametrize("content", [b"", b"{}\n", b"junk", encode_record({"version": 2, "expires": 0})])
def test_a_damaged_lock_record_is_refused_and_not_taken_over(
    store: LocalStateStore, clock: Clock, content: bytes
) -> None:
    """What cannot be read might be held."""
    store.create(f"{FOLDER}00000001.json", content)
    with pytest.raises(VerificationError, match=r"00000001\.json"):
        take(store, clock)


def test_a_foreign_file_among_lock_records_is_refused(store: LocalStateStore, clock: Clock) -> None:
    """A name that is not a lock record's is not passed over."""
    store.create(f"{FOLDER}00000001.json.bak", b"")
    with pytest.raises(VerificationError, match="not the name"):
        take(store, clock)


@pytest.mark.parametrize("lifetime_seconds", [0, -1, float("inf"), float("nan")])
def test_impossible_lifetimes_are_refused(store: LocalStateStore, clock: Clock, lifetime_seconds: float) -> None:
    """A lock that never, or always, expires is a mistake."""
    with pytest.raises(ConfigError, match="lifetime"):
        take(store, clock, lifetime_seconds=lifetime_seconds)


class Watched(LocalStateStore):
    """Tells when a renewal was written, and fails the first ones when asked to."""

    def __init__(self, root: Path, failures: int = 0) -> None:
        super().__init__(root)
        self.failures, self.renewed = failures, threading.Semaphore(0)

    def create(self, name: str, content: bytes) -> bool:
        """Create a record, or fail."""
        renewal = name.count(".") == 2 and "released" not in name
        if renewal and self.failures:
            self.failures -= 1
            raise ConfigError("the disk is full")
        created = super().create(name, content)
        if renewal:
            self.renewed.release()
        return created


def keepers() -> list[threading.Thread]:
    """The renewal threads that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == f"lock {FOLDER}"]


@pytest.mark.parametrize("failures", [0, 2])
def test_a_lock_is_kept_alive_until_it_is_released(tmp_path: Path, clock: Clock, failures: int) -> None:
    """The renewal thread renews again and again, over failures of the file system too, and ends with the release."""
    store = Watched(tmp_path, failures)
    with take(store, clock, lifetime_seconds=0.03) as lock:
        lock.keep_alive()
        lock.keep_alive()
        assert len(keepers()) == 1 and keepers()[0].daemon
        assert all(store.renewed.acquire(timeout=10) for _ in range(3))
    assert keepers() == []


def test_the_renewal_thread_ends_when_the_lock_is_lost(tmp_path: Path, clock: Clock) -> None:
    """A fenced owner's thread renews no more, and the owner learns it from its check."""
    store = Watched(tmp_path)
    lock = take(store, clock, lifetime_seconds=0.03)
    clock.now += 0.03
    take(store, clock, "run-2")
    lock.keep_alive()
    keeper = keepers()
    for thread in keeper:
        thread.join(timeout=10)
    assert keepers() == []
    assert not store.renewed.acquire(blocking=False)
    with pytest.raises(RunConflictError, match="run-2"):
        lock.check()


def test_the_lock_of_a_driver_that_was_killed_here_is_free(store: LocalStateStore, tmp_path: Path) -> None:
    """After kill -9 of its process on this machine the next run needs not wait for the lock's end."""
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "state")], cwd=ROOT) as driver:
        assert driver.wait(timeout=60) == -signal.SIGKILL
    assert acquire(store, "t", run_id="next", owner="me").token == 2


@pytest.mark.parametrize("field", ["host", "boot", "namespace", "began"])
def test_the_lock_of_a_driver_that_may_live_elsewhere_expires(
    store: LocalStateStore, tmp_path: Path, field: str
) -> None:
    """Where another machine, boot or container may run the process, or cannot be told, the lock's end is waited for."""
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "state")], cwd=ROOT) as driver:
        assert driver.wait(timeout=60) == -signal.SIGKILL
    file = tmp_path / "state" / "locks" / "t" / "00000001.json"
    record = json.loads(file.read_text())
    file.write_bytes(encode_record({**record, field: None if field == "began" else "elsewhere"}))
    with pytest.raises(RunConflictError, match=rf"held by run killed .*process {driver.pid}\)"):
        acquire(store, "t", run_id="next", owner="me")
    assert acquire(store, "t", run_id="next", owner="me", clock=lambda: time.time() + 120).token == 2


def test_a_paused_driver_is_not_taken_for_dead(store: LocalStateStore, tmp_path: Path) -> None:
    """A process that was stopped, or whose number another process has now, is told apart from one that is gone."""
    code = KILLED.replace("signal.SIGKILL", "signal.SIGSTOP").replace("lock.keep_alive()", "")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "state")], cwd=ROOT) as driver:
        while not (tmp_path / "state" / "locks" / "t" / "00000001.json").exists():
            time.sleep(0.01)
        with pytest.raises(RunConflictError, match="held by run killed"):
            acquire(store, "t", run_id="next", owner="me")
        driver.kill()
    file = tmp_path / "state" / "locks" / "t" / "00000001.json"
    record = json.loads(file.read_text())
    assert is_dead({**record, "pid": os.getpid()})
    assert not is_dead(this_process().to_dict())


def test_racing_processes_hold_the_lock_one_after_the_other(together: Together, tmp_path: Path) -> None:
    """Four processes take, renew and release: never two at once, and no token twice."""
    tokens = [int(token) for output in together(RACE) for token in output.split()]
    assert len(tokens) == len(set(tokens)) and len(tokens) >= 4
    assert sorted(tokens)[-1] >= len(tokens)
    left = LocalStateStore(tmp_path / "state").list("locks/t/")
    assert f"locks/t/{max(tokens):08d}.released.json" in left


def test_tokens_go_on_after_those_of_the_log(store: LocalStateStore) -> None:
    """Where the records of locks were deleted: a driver that began again at one would be fenced off for ever."""
    log = TableLog.open(store, TABLE, TableMac(b"k" * 32))
    log.append("step", RUN, 7, {})
    store.create(f"log/{TABLE}/00000002.json", b"torn")
    assert acquire(store, TABLE, run_id=RUN, owner="a@h").token == 8
