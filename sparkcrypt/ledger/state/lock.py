"""The lock of a table, for one run at a time: it expires, has fencing tokens, and consists of immutable records.

    locks/<table id>/00000007.json            token 7 was taken: by which run, since when, until when
    locks/<table id>/00000007.<n>.json        its n-th renewal: the same with a later end
    locks/<table id>/00000007.released.json   released

The highest token owns the table until it is released, its latest record has expired, or its process is known to be dead
(``is_dead``); then the next token may be taken.  Tokens only grow, since the records of the last one stay, and where
they were deleted, tokens go on after that of the table's log.  An
owner that was suspended detects the higher token, or the end of its own lock, at its next ``check``.  A renewal is
valid only if it was written before the lock's end, so a lock cannot be taken over while its owner holds it, provided
that the clocks of their machines agree.

Only processes of this machine can be checked for that, so a lock records the machine's boot id, the namespace of
process numbers, and when the process began, since numbers are reused.  A process that cannot be checked counts as
alive.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from sparkcrypt.errors import ConfigError, RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_record

_START_TIME = 19
"""Index of ``starttime`` among the fields after the program's name in /proc/PID/stat (proc(5), field 22)."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its host and number, and the values that make both unique; None if the system does not have them."""

    host: str
    pid: int
    boot: str | None
    namespace: str | None
    began: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the process as JSON values."""
        return asdict(self)


def this_process() -> Process:
    """Return the current process."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _boot(), _namespace(), _began(pid))


def is_dead(record: Mapping[str, Any]) -> bool:
    """Return whether the process in a record ran on this machine and no longer exists.

    Args:
        record: contains the members that `Process.to_dict` returns.
    """
    here = this_process()
    place = (record.get("host"), record.get("boot"), record.get("namespace"))
    pid, began = record.get("pid"), record.get("began")
    if None in place or place != (here.host, here.boot, here.namespace) or not isinstance(pid, int) or began is None:
        return False
    if not Path("/proc/self/stat").exists():
        return False
    return bool(_began(pid) != began)


def _boot() -> str | None:
    return _read_text(Path("/proc/sys/kernel/random/boot_id"))


def _namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _began(pid: int) -> str | None:
    """Return when a process began, in clock ticks since boot; None if it does not exist, or is a zombie."""
    text = _read_text(Path(f"/proc/{pid}/stat"))
    fields = text.rpartition(")")[2].split() if text else []
    return fields[_START_TIME] if len(fields) > _START_TIME and fields[0] not in ("Z", "X") else None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def acting_user() -> str:
    """Return ``user@host`` of this process."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


LIFETIME_SECONDS = 120.0
_VERSION = 1
_NAME = re.compile(r"(?P<token>\d{8}|[1-9]\d{8,})(?:\.(?P<renewal>\d+)|(?P<released>\.released))?\.json")
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class _Names:
    """The state of a table's highest token, derived from the names of lock records."""

    token: int
    renewal: int
    released: bool


class RunLock:
    """A lock taken by ``acquire``; call ``check`` before anything that cannot be undone.

    As a context manager it is released at the end of the block; ``keep_alive`` renews it until then.

    Attributes:
        token: the fencing token, a number greater than that of every earlier owner.
    """

    def __init__(
        self,
        store: StateStore,
        folder: str,
        token: int,
        record: dict[str, Any],
        lifetime_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.token = token
        self._store, self._folder, self._record = store, folder, record
        self._lifetime_seconds, self._clock = lifetime_seconds, clock
        self._expires = float(record["expires"])
        self._renewals, self._released = 0, False
        self._mutex = threading.Lock()
        self._stop, self._trouble = threading.Event(), ""
        self._keeper: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"RunLock(run_id={self._record['run_id']!r}, token={self.token})"

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error that is being raised matters more than a lock that expires by itself.
        with contextlib.suppress(SparkcryptError) if error is not None else contextlib.nullcontext():
            self.release()

    def check(self) -> None:
        """Check that the lock is still held.

        Raises:
            RunConflictError: it was released, it expired, or another run took the table over.
        """
        newest = _find_highest_token(self._store.list(self._folder))
        if newest is None or newest.token != self.token:
            raise self._describe_lost(f"another run took the table over{self._who(newest)}")
        if self._released or newest.released:
            raise self._describe_lost("it was given back")
        if self._clock() >= self._expires:
            raise self._describe_lost(f"it expired {_text(self._expires)} without being renewed{self._trouble}")

    def renew(self) -> None:
        """Extend the lock to its lifetime from now.

        Raises:
            RunConflictError: it is no longer held, or it expired while it was being renewed.
        """
        with self._mutex:
            self.check()
            end, expires = self._expires, self._clock() + self._lifetime_seconds
            self._renewals += 1
            content = encode_record({**self._record, "expires": expires})
            if not self._store.create(f"{self._folder}{self.token:08d}.{self._renewals}.json", content):
                raise self._describe_lost("another process renews it")
            # A run that listed the records after the end may not have seen this one, and may have taken the table.
            if self._clock() >= end:
                raise self._describe_lost(f"it expired {_text(end)} while it was being renewed{self._trouble}")
            self._expires = expires
            if self._renewals > 2:
                self._store.delete(f"{self._folder}{self.token:08d}.{self._renewals - 2}.json")

    def keep_alive(self) -> None:
        """Renew the lock in the background, three times per lifetime, until it is released or lost."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name=f"lock {self._folder}", daemon=True)
            self._keeper.start()

    def release(self) -> None:
        """Release the lock, stop renewing it, and delete older records; the token's own stay, so that tokens grow."""
        self._released = True
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join()
        self._store.create(f"{self._folder}{self.token:08d}.released.json", encode_record(self._record))
        names = self._store.list(self._folder)
        newest = _find_highest_token(names)
        if newest is not None and newest.token == self.token:
            last = f"{self._folder}{self.token:08d}"
            for name in names:
                if name not in (f"{last}.json", f"{last}.released.json"):
                    self._store.delete(name)

    def _keep(self) -> None:
        pause = self._lifetime_seconds / 3
        while not self._stop.wait(pause):
            try:
                self.renew()
            except RunConflictError:
                return  # the run's next check raises
            except SparkcryptError as error:
                self._trouble = f"; the last try failed: {error}"
                pause = self._lifetime_seconds / 12
            else:
                self._trouble, pause = "", self._lifetime_seconds / 3

    def _describe_lost(self, why: str) -> RunConflictError:
        return RunConflictError(
            f"run {self._record['run_id']} no longer holds the lock {self._folder}{self.token:08d}: {why}; this run "
            "stops and changes nothing more; when no other run is active, start it again to continue"
        )

    def _who(self, newest: _Names | None) -> str:
        if newest is None or newest.token < self.token:
            return ", or its records were deleted"
        record = _read(self._store, self._folder, newest)
        return "" if record is None else f": run {record['run_id']} of {record['owner']}, token {newest.token}"


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

    Args:
        store: the state directory.
        table_id: the table's id.
        run_id: the run, or command, that takes it.
        owner: user and host, for messages; this process's host and number are recorded too.
        lifetime_seconds: how long it is held without being renewed; far longer than the difference between clocks.
        clock: returns the seconds since the epoch.

    Raises:
        RunConflictError: another run holds it; the message names it.
        VerificationError: the newest lock record is damaged.
    """
    if not 0 < lifetime_seconds < float("inf"):
        raise ConfigError(f"a lock's lifetime of {lifetime_seconds} s is not possible; allowed: more than 0 s")
    folder = f"locks/{table_id}/"
    for _ in range(_ATTEMPTS):
        token = _free_token(store, folder, table_id, clock)
        if token is None:
            continue
        now = clock()
        record = _take_record(run_id, owner, now, now + lifetime_seconds)
        name = f"{folder}{token:08d}.json"
        if not store.create(name, encode_record(record)):
            continue
        newest = _find_highest_token(store.list(folder))
        if newest is not None and newest.token == token:
            return RunLock(store, folder, token, record, lifetime_seconds, clock)
        store.delete(name)  # another run took and gave up this token after the listing
    raise RunConflictError(
        f"table {table_id}: other runs take its lock again and again; run again when they have ended"
    )


def is_held(store: StateStore, table_id: str, clock: Callable[[], float] = time.time) -> bool:
    """Return whether a run holds the lock of a table now.

    Raises:
        VerificationError: a lock record is damaged.
    """
    folder = f"locks/{table_id}/"
    newest = _find_highest_token(store.list(folder))
    record = None if newest is None or newest.released else _read(store, folder, newest)
    return record is not None and clock() < record["expires"] and not is_dead(record)


def _take_record(run_id: str, owner: str, acquired: float, expires: float) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "run_id": run_id,
        "owner": owner,
        **this_process().to_dict(),
        "acquired": acquired,
        "expires": expires,
    }


def _free_token(store: StateStore, folder: str, table_id: str, clock: Callable[[], float]) -> int | None:
    """Return the token that may be taken; None if the records changed while they were read.

    Raises:
        RunConflictError: the table is held.
    """
    now = clock()  # before the listing, which then contains every renewal that was written in time
    newest = _find_highest_token(store.list(folder))
    if newest is None:
        return 1 + _find_last_token(store, table_id)
    if newest.released:
        return newest.token + 1
    record = _read(store, folder, newest)
    if record is None:
        return None
    if now >= record["expires"] or is_dead(record):
        return newest.token + 1
    raise RunConflictError(
        f"table {table_id} is held by run {record['run_id']} of {record['owner']} (host {record['host']}, process "
        f"{record['pid']}) since {_text(record['acquired'])}, until {_text(record['expires'])} unless it renews; "
        f"wait until that run has ended, or, if its process is dead, run again after {_text(record['expires'])}"
    )


def _find_last_token(store: StateStore, table_id: str) -> int:
    """Return the highest token in the last object of a table's log that has one, which may be forged; 0 if none has.

    Where the records of locks were deleted, a lower one would fence off every later driver.
    """
    for name in reversed(store.list(f"log/{table_id}/")):
        found = []
        for line in (store.read(name) or b"").splitlines():
            with contextlib.suppress(VerificationError):
                found.append(decode_record(name, line + b"\n").get("fencing_token"))
        tokens = [token for token in found if type(token) is int and token > 0]
        if tokens:
            return max(tokens)
    return 0


def _find_highest_token(names: Iterable[str]) -> _Names | None:
    """Return the highest token among the names of lock records; None if there are none.

    Raises:
        VerificationError: a name is not that of a lock record.
    """
    found: list[tuple[int, int, bool]] = []
    for name in names:
        match = _NAME.fullmatch(name.rpartition("/")[2])
        if match is None:
            raise VerificationError(f"{name}: is not the name of a lock record; move it away when you know what it is")
        found.append((int(match["token"]), int(match["renewal"] or 0), match["released"] is not None))
    if not found:
        return None
    token = max(found)[0]
    last = [parts for parts in found if parts[0] == token]
    return _Names(token, max(renewal for _, renewal, _ in last), any(released for _, _, released in last))


def _read(store: StateStore, folder: str, newest: _Names) -> dict[str, Any] | None:
    """Return the latest record of a token; None if it no longer exists.

    Raises:
        VerificationError: the record is damaged, or of another version.
    """
    name = f"{folder}{newest.token:08d}{f'.{newest.renewal}' if newest.renewal else ''}.json"
    content = store.read(name)
    if content is None:
        return None
    record = decode_record(name, content)
    if record.get("version") != _VERSION or not isinstance(record.get("expires"), int | float):
        raise VerificationError(
            f"{name}: version {record.get('version')} of lock records is not known; allowed: {_VERSION}; use the "
            "release that wrote it, or delete it when no run is active"
        )
    return record


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(sep=" ", timespec="seconds")
