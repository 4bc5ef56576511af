"""What locks do in every store of state, and scripts that take one in another process."""

from __future__ import annotations

import pytest

from sparkcrypt.errors import RunConflictError
from sparkcrypt.ledger.state.lock import RunLock, acquire
from sparkcrypt.ledger.state.store import StateStore
from tests.unit.backfill.conftest import TABLE, Clock

FOLDER = f"locks/{TABLE}/"


RACE = """
import os, sys
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.errors import RunConflictError
store, inside = LocalStateStore(sys.argv[1] + "/state"), sys.argv[1] + "/inside"
print("ready", flush=True)
sys.stdin.readline()
for round in range(60):
    try:
        with acquire(store, "t", run_id=f"run-{os.getpid()}", owner="me") as lock:
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails when somebody else is inside
            lock.check()
            lock.renew()
            os.unlink(inside)
            print(lock.token)
    except RunConflictError:
        pass
"""


KILLED = """
import os, signal, sys
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.ledger.state.store import LocalStateStore
lock = acquire(LocalStateStore(sys.argv[1]), "t", run_id="killed", owner="me")
lock.keep_alive()
os.kill(os.getpid(), signal.SIGKILL)
"""


def take(store: StateStore, clock: Clock, run_id: str = "run-1", lifetime_seconds: float = 120.0) -> RunLock:
    """Take the lock of the table for a run."""
    return acquire(store, TABLE, run_id=run_id, owner="ann@etl-1", lifetime_seconds=lifetime_seconds, clock=clock)


def names(store: StateStore) -> list[str]:
    """The lock's records, without their folder."""
    return [name.removeprefix(FOLDER) for name in store.list(FOLDER)]


class LockBehaviour:
    """Runs on the fixture ``store`` of the module in which a class inherits it."""

    def test_a_second_run_is_refused_and_told_about_the_first(self, store: StateStore, clock: Clock) -> None:
        """The message names run, owner, host, process, since when, until when, and what to do."""
        take(store, clock)
        with pytest.raises(RunConflictError) as refused:
            take(store, clock, "run-2")
        for part in (
            "run-1",
            "ann@etl-1",
            "host ",
            "process ",
            "since 2027-01-15 08:00:00+00:00",
            "until 2027-01-15 08:02:00",
        ):
            assert part in str(refused.value)
        assert "wait until that run has ended" in str(refused.value)
        assert names(store) == ["00000001.json"]

    def test_locks_of_two_tables_do_not_meet(self, store: StateStore, clock: Clock) -> None:
        """Another table's lock is free."""
        take(store, clock)
        assert acquire(store, "other", run_id="run-2", owner="me", clock=clock).token == 1

    def test_a_released_lock_is_free_at_once_and_its_token_is_never_used_again(
        self, store: StateStore, clock: Clock
    ) -> None:
        """The next owner gets the next token, and only the last owner's records stay."""
        for token in (1, 2, 3):
            with take(store, clock, f"run-{token}") as lock:
                assert lock.token == token
                for _ in range(5):
                    lock.renew()
        assert names(store) == ["00000003.json", "00000003.released.json"]

    def test_renewals_move_the_end_and_do_not_pile_up(self, store: StateStore, clock: Clock) -> None:
        """A lock that is renewed in time is held as long as one likes, by few records."""
        lock = take(store, clock)
        for _ in range(50):
            clock.now += 100
            lock.renew()
            lock.check()
        assert len(names(store)) == 3
        clock.now += 119
        with pytest.raises(RunConflictError, match="run-1"):
            take(store, clock, "run-2")

    def test_an_expired_lock_is_taken_over_with_the_next_token(self, store: StateStore, clock: Clock) -> None:
        """A dead run's lock is free when its time is over, not a moment before."""
        take(store, clock)
        clock.now += 119.999
        with pytest.raises(RunConflictError):
            take(store, clock, "run-2")
        clock.now += 0.001
        assert take(store, clock, "run-2").token == 2

    def test_a_paused_owner_is_fenced_off_when_another_took_over(self, store: StateStore, clock: Clock) -> None:
        """It finds the higher token at its next check or renewal, and the message names the new owner."""
        first = take(store, clock)
        clock.now += 120
        second = take(store, clock, "run-2")
        for attempt in (first.check, first.renew):
            with pytest.raises(RunConflictError, match=r"run run-1 no longer holds.*run run-2 of ann@etl-1, token 2"):
                attempt()
        second.check()

    def test_a_paused_owner_is_fenced_off_even_when_nobody_took_over(self, store: StateStore, clock: Clock) -> None:
        """An expired lock is not held, and cannot be renewed back to life."""
        lock = take(store, clock)
        clock.now += 120
        for attempt in (lock.check, lock.renew, lock.check):
            with pytest.raises(RunConflictError, match="expired"):
                attempt()

    def test_a_fenced_owner_that_releases_takes_nothing_from_the_new_one(self, store: StateStore, clock: Clock) -> None:
        """Its late release neither frees nor deletes the lock of who took over."""
        first = take(store, clock)
        clock.now += 120
        second = take(store, clock, "run-2")
        first.release()
        second.check()
        with pytest.raises(RunConflictError, match="run-2"):
            take(store, clock, "run-3")

    def test_a_released_lock_can_neither_be_checked_nor_renewed(self, store: StateStore, clock: Clock) -> None:
        """Who gave a lock back does not hold it."""
        lock = take(store, clock)
        lock.release()
        lock.release()
        for attempt in (lock.check, lock.renew):
            with pytest.raises(RunConflictError, match="given back"):
                attempt()

    def test_an_owner_whose_records_were_deleted_does_not_hold_the_lock(self, store: StateStore, clock: Clock) -> None:
        """A cleared state directory is no lock."""
        lock = take(store, clock)
        store.delete(f"{FOLDER}00000001.json")
        with pytest.raises(RunConflictError, match="deleted"):
            lock.check()
