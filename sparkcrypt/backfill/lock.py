"""One run at a time on a table: a lock with an expiry and a fencing token, made of records that are never changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sparkcrypt.backfill.store import StateStore
from sparkcrypt.errors import RunConflictError

LIFETIME_SECONDS = 120.0


class RunLock:
    """A held lock; ``check`` before anything that cannot be undone."""

    def __init__(
        self, store: StateStore, table_id: str, token: int, run_id: str, lifetime_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._store, self._table_id, self.token, self._run_id = store, table_id, token, run_id
        self._lifetime_seconds, self._clock = lifetime_seconds, clock
        self._renewals = 0
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._keeper: threading.Thread | None = None

    def __enter__(self) -> RunLock:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it."""
        self.release()

    def check(self) -> None:
        """See that the lock is still held.

        Raises:
            RunConflictError: it expired, or another run took it over.
        """
        token, newest = _newest(self._store, self._table_id)
        if token != self.token or newest is None or newest.get("released"):
            raise RunConflictError(f"run {self._run_id}: another run took the table over; this one stops and changes nothing more")
        if self._clock() >= newest["expires"]:
            raise RunConflictError(f"run {self._run_id}: its lock expired while it paused; start it again to continue")

    def renew(self) -> None:
        """Prolong the lock.

        Raises:
            RunConflictError: it is no longer held.
        """
        with self._guard:
            self.check()
            self._renewals += 1
            record = {"run_id": self._run_id, "expires": self._clock() + self._lifetime_seconds}
            self._store.create(f"locks/{self._table_id}/{self.token:08d}.{self._renewals:06d}.json", _encoded(record))

    def keep_alive(self) -> None:
        """Renew in the background until the lock is released or lost."""

        def keep() -> None:
            while not self._stopped.wait(self._lifetime_seconds / 3):
                try:
                    self.renew()
                except RunConflictError:
                    return  # the run finds out at its next check

        self._keeper = threading.Thread(target=keep, daemon=True)
        self._keeper.start()

    def release(self) -> None:
        """Give the lock back and tidy its older records."""
        self._stopped.set()
        if self._keeper is not None:
            self._keeper.join()
        own = f"locks/{self._table_id}/{self.token:08d}."
        self._store.create(f"{own}released.json", _encoded({"run_id": self._run_id, "released": True}))
        for name in self._store.list(f"locks/{self._table_id}/"):
            if not name.startswith(own):
                self._store.delete(name)


def acquire(
    store: StateStore,
    table_id: str,
    *,
    run_id: str,
    owner: str,
    lifetime_seconds: float = LIFETIME_SECONDS,
    clock: Callable[[], float] = time.time,
) -> RunLock:
    """Take the lock of a table.

    Raises:
        RunConflictError: another run holds it; it is named.
    """
    token, newest = _newest(store, table_id)
    if newest is not None and not newest.get("released") and clock() < newest["expires"]:
        left = int(newest["expires"] - clock())
        raise RunConflictError(
            f"run {newest['run_id']} of {newest.get('owner', 'another driver')} holds this table; wait until it ends, or, if it "
            f"is dead, until its lock expires in {left} s, then start again"
        )
    now = clock()
    record = {"run_id": run_id, "owner": owner, "acquired": now, "expires": now + lifetime_seconds}
    if not store.create(f"locks/{table_id}/{token + 1:08d}.json", _encoded(record)):
        raise RunConflictError("another run took this table at the same moment; start again when it has ended")
    return RunLock(store, table_id, token + 1, run_id, lifetime_seconds, clock)


def _newest(store: StateStore, table_id: str) -> tuple[int, dict[str, Any] | None]:
    """Return the highest token, and what its records say together."""
    names = store.list(f"locks/{table_id}/")
    if not names:
        return 0, None
    token = max(int(name.rpartition("/")[2].split(".")[0]) for name in names)
    merged: dict[str, Any] = {}
    for name in names:
        if name.rpartition("/")[2].startswith(f"{token:08d}."):
            record = json.loads(store.read(name) or b"{}")
            expires = max(merged.get("expires", 0.0), record.get("expires", 0.0))
            merged = {**merged, **record, "expires": expires}
    return token, merged


def _encoded(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True).encode()
