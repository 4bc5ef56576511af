"""Writes access events of reads outside Spark: the keys that each read opened, and those that it was refused."""

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

from sparkcrypt.decide.access.log import ACCESS, LOST, AccessLog, Outcome, Record, make_record
from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, StorageError
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.policy.access_log import AccessLogRule

ROUTE = "arrow"
MOST_KEPT = 10_000
"""Maximum number of events kept in memory while the log cannot be written; further ones are counted as lost."""
_LOG = logging.getLogger(__name__)

_Same: TypeAlias = "tuple[str, Outcome, str | None]"
"""Key, outcome and reason, by which the events of one read are distinguished."""


@dataclass(slots=True)
class _Written:
    columns: set[str | None] = field(default_factory=set)
    further: int = 0
    last_ms: int = 0


class ProcessLog:
    """This process's writer of one access log; thread-safe.

    Args:
        rule: the log's location, and whether a read fails if its events cannot be written.
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
        """Write an event, after earlier ones that could not be written.

        Raises:
            StorageError: it could not be written, and the log is required.
        """
        with self._lock:
            records = [*self._kept, *self._make_lost_record(), self._record(event)]
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

    def _make_lost_record(self) -> Iterable[Record]:
        if self._lost:
            now = _now_ms()
            yield self._record({"kind": LOST, "count": self._lost, "first_ms": now, "last_ms": now})

    def _keep(self, records: list[Record]) -> None:
        events = [record for record in records if record["kind"] != LOST]
        self._lost += len(events[MOST_KEPT:])
        self._kept = events[:MOST_KEPT]


_LOGS: ExpiringCache[tuple[int, AccessLogRule], ProcessLog] = ExpiringCache(float("inf"))
_READS = itertools.count(1)


def open_log(rule: AccessLogRule | None) -> ProcessLog | None:
    """Return this process's log for a policy, shared by all tables that it reads; None if the policy has none."""
    if rule is None:
        return None
    return _LOGS.get((os.getpid(), rule), lambda: ProcessLog(rule))  # a forked process needs its own log files


class ReadEvents:
    """The events of one read of a table; thread-safe.

    The first opening of a key for a column is written at once, before the key is used; further openings, for other
    files, are counted and written when the read ends.

    Args:
        log: the access log; None if the policy has none, and then nothing is written.
        table: the table's name as the reader gave it, else its folder.
        principal: the reader's name.
        run_state: the policy's state directory, whose tombstones explain why a key does not exist.
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
        """Note that a column is null in this read because of its key.

        Raises:
            StorageError: as `note_opened`.
        """
        self._note((key, "masked", why), column)

    def note_refused(self, key: str, column: str | None, error: Exception) -> None:
        """Note that a key was refused for a column, or for the footer if the column is None.

        The caller raises that error, so this raises none: an event that cannot be written is logged as a warning.
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
        """Write the counts of repeated openings of keys.  May be called several times."""
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
            written.last_ms = _now_ms()
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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
