"""Access events of reads outside Spark: each read leaves which keys it opened, and which it was refused."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkcrypt.access.log import AccessLog
from sparkcrypt.access.records import ACCESS, LOST, Outcome, Record, make_record
from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, StorageError
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.policy.access_log import AccessLogRule

ROUTE = "arrow"
MOST_KEPT = 10_000
"""How many events wait in memory while a log cannot be written; what is beyond is counted as lost."""
_LOG = logging.getLogger(__name__)

_Same: TypeAlias = "tuple[str, Outcome, str | None]"
"""Key, outcome and reason: what the events of one read are told apart by."""


@dataclass(slots=True)
class _Written:
    columns: set[str | None] = field(default_factory=set)
    further: int = 0
    last_ms: int = 0


class ProcessLog:
    """The files of this process in one log; safe for many threads.

    Args:
        rule: where the log is, and whether reads wait for it.
    """

    def __init__(self, rule: AccessLogRule) -> None:
        self.rule = rule
        self._application = f"{ROUTE}-{os.getpid()}"
        self._process = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._log = AccessLog(rule.location, owner=f"{self._application}-{self._process}")
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._kept: list[Record] = []
        self._lost = 0
        self._is_warned = False

    def write(self, event: dict[str, object]) -> None:
        """Write an event, after those that could not be written before.

        Raises:
            StorageError: it could not be written, and the log is required.
        """
        with self._lock:
            records = [*self._kept, *self._lost_ones(), self._record(event)]
            try:
                self._log.append(records, durable=self.rule.required)
            except StorageError as error:
                if self.rule.required:
                    raise
                self._keep(records)
                if not self._is_warned:
                    _LOG.warning("%s; reads go on, and events are kept and written later", error)
                self._is_warned = True
            else:
                self._kept, self._lost, self._is_warned = [], 0, False

    def _record(self, event: dict[str, object]) -> Record:
        known = {"application": self._application, "route": ROUTE, "number": next(self._numbers)}
        return make_record({**event, **known}, process=self._process)

    def _lost_ones(self) -> Iterable[Record]:
        if self._lost:
            now = _now()
            yield self._record({"kind": LOST, "count": self._lost, "first_ms": now, "last_ms": now})

    def _keep(self, records: list[Record]) -> None:
        events = [record for record in records if record["kind"] != LOST]
        self._lost += len(events[MOST_KEPT:])
        self._kept = events[:MOST_KEPT]


_LOGS: ExpiringCache[tuple[int, AccessLogRule], ProcessLog] = ExpiringCache(float("inf"))
_READS = itertools.count(1)


def open_log(rule: AccessLogRule | None) -> ProcessLog | None:
    """Return the log of a policy, the same for all tables that this process reads; None where the policy has none."""
    if rule is None:
        return None
    return _LOGS.get((os.getpid(), rule), lambda: ProcessLog(rule))  # a forked process has files of its own


class ReadEvents:
    """The events of one read of a table; safe for many threads.

    The first opening of a key for a column is written at once, before the key is handed on; further ones, of other
    files, are counted and written when the read ends.

    Args:
        log: None where the policy has none; then nothing happens.
        table: as the reader names it, else its folder.
        principal: who reads.
        run_state: the policy's state directory, whose tombstones tell of keys that are not there.
    """

    def __init__(self, log: ProcessLog | None, table: str, principal: str, *, run_state: str) -> None:
        self._log, self._run_state = log, run_state
        self._who = {"kind": ACCESS, "table": table, "principal": principal, "execution": f"{next(_READS)}"}
        self._lock = threading.Lock()
        self._written: dict[_Same, _Written] = {}

    def note_opened(self, key: str, column: str) -> None:
        """Note that a key was opened for a column.

        Raises:
            StorageError: the log is required, and the event could not be written.
        """
        self._note((key, "opened", None), column)

    def note_masked(self, key: str, column: str, why: str) -> None:
        """Note that this read gets nulls in place of a column.

        Raises:
            StorageError: as `note_opened`.
        """
        self._note((key, "masked", why), column)

    def note_refused(self, key: str, column: str | None, error: Exception) -> None:
        """Note that a key was not handed out for a column; None: for the footer.

        The reader is told why by that error, so this raises none.
        """
        why: str | None = "denied" if isinstance(error, KeyAccessDeniedError) else None
        if isinstance(error, KeyNotFoundError):
            why = reason_of_absence(self._run_state, key)
        same: _Same = (key, "refused", why) if why else (key, "failed", type(error).__name__)
        try:
            self._note(same, column)
        except StorageError as lost:
            _LOG.warning("%s", lost)

    def close(self) -> None:
        """Write how often keys were opened that had been opened before in this read.  Safe to call again."""
        with self._lock:
            counted = [(same, written) for same, written in self._written.items() if written.further]
            for same, written in counted:
                self._write(same, written.columns, written.further, written.last_ms)
                written.further = 0

    def _note(self, same: _Same, column: str | None) -> None:
        if self._log is None:
            return
        with self._lock:
            written = self._written.get(same) or _Written()
            written.last_ms = _now()
            if column in written.columns:
                written.further += 1
                return
            self._write(same, {column}, 1, written.last_ms)
            written.columns.add(column)
            self._written[same] = written

    def _write(self, same: _Same, columns: set[str | None], count: int, last_ms: int) -> None:
        key, outcome, why = same
        event = {"key": key, "outcome": outcome, "why": why, "count": count, "first_ms": last_ms, "last_ms": last_ms}
        named = sorted(column for column in columns if column is not None)
        if self._log is not None:
            self._log.write({**self._who, **event, "columns": named, "footer": None in columns})


def _now() -> int:
    return time.time_ns() // 1_000_000
