"""The journal of a run: numbered, checksummed, chained records, from which a killed run is continued.

    runs/<table id>/<run id>/000001.json          first record, of kind ``run_started``
    runs/<table id>/<run id>/000007-retry1.json   record 7, where ``000007.json`` is torn

A record is one line of canonical JSON: ``version``, ``number``, ``time`` (UTC), ``kind``, ``run_id``,
``fencing_token``, ``fields``, ``previous`` (SHA-256 of the bytes of the record before), ``supersedes`` (SHA-256 of the
torn record whose number it takes, else null) and ``checksum`` (SHA-256 of the record without it).

Each is created exclusively: of two drivers that continue one run only one can write record *n*, the other is fenced
off.  A *torn* record is a beginning of one without its end (a power cut on a file system that keeps names but not yet
content).  Only the last may be torn.  It is never deleted, since a driver that was slow to delete it could delete the
good record that took its place; its number goes to the name ``-retry1`` (``-retry2`` …), exclusively again, and
``supersedes`` pins the torn bytes, so that a torn record which changes later is damage.

The chain finds accidents anywhere in the journal.  It does not find records that were cut off at its end (as after a
crash), and whoever may write to the state directory can compute another; against that stands the audit.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.backfill.store import StateStore, decode_record, encode_record
from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError

VERSION = 1
UNIT_KINDS = (
    *("unit_listed", "unit_staged", "unit_verified", "unit_swapping", "unit_swapped", "unit_moved", "unit_failed"),
    *("unit_carrying", "unit_carried", "unit_rolling_back", "unit_rolled_back"),
)
RUN_KINDS = ("run_started", "run_resumed", "run_paused", "run_finished", "run_rolled_back", "run_expired")
KINDS = RUN_KINDS + UNIT_KINDS

_NAME = re.compile(r"(?P<number>\d{6}|[1-9]\d{6,})(?:-retry(?P<attempt>[1-9]\d*))?\.json")
_DAMAGED = "the state directory was damaged; restore it, or look at the table and start a new run"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run was started with; ``plan`` and ``options`` are JSON values, frozen in the journal's first record."""

    table_id: str
    table: str
    run_id: str
    policy_digest: str
    plan: dict[str, Any]
    options: dict[str, Any]
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a journal, as it stands in the state directory under ``name``."""

    name: str
    number: int
    time: str
    kind: str
    run_id: str
    fencing_token: int
    fields: Mapping[str, Any]
    previous: str
    supersedes: str | None
    checksum: str


class Journal:
    """A run's records; ``start`` or ``open`` makes it."""

    def __init__(self, store: StateStore, run: RunRecord, chain: _Chain) -> None:
        self._store, self._chain, self.run = store, chain, run
        self._mutex = threading.Lock()
        self._token = max([run.fencing_token, *(record.fencing_token for record in chain.records)])

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record, oldest first."""
        return tuple(self._chain.records)

    @property
    def torn(self) -> str | None:
        """Name of the torn last record, whose number the next one takes; None when there is none."""
        return self._chain.torn_name

    @classmethod
    def start(cls, store: StateStore, run: RunRecord) -> Journal:
        """Begin the journal of a new run.

        Raises:
            RunConflictError: there is a run of that id already.
        """
        journal = cls(store, run, _Chain(f"runs/{run.table_id}/{run.run_id}/", run.run_id))
        fields = {name: value for name, value in asdict(run).items() if name not in ("run_id", "fencing_token")}
        journal.append("run_started", **fields)
        return journal

    @classmethod
    def open(cls, store: StateStore, table_id: str, run_id: str) -> Journal:
        """Read the journal of a run and check all of it.

        Raises:
            VerificationError: a record is missing, damaged, not in the chain, or of an unknown version or kind; the
                message names the file.
        """
        folder = f"runs/{table_id}/{run_id}/"
        chain = _Chain(folder, run_id)
        chain.load(store)
        if not chain.records or chain.records[0].kind != "run_started":
            raise VerificationError(f"{folder}: the journal's first record is not whole or not there; {_DAMAGED}")
        return cls(store, _run_record(chain.records[0], table_id), chain)

    @staticmethod
    def runs(store: StateStore, table_id: str) -> tuple[str, ...]:
        """Return the ids of a table's runs, oldest first, less those whose only record is torn: they never began."""
        names: dict[str, list[str]] = {}
        for name in store.list(f"runs/{table_id}/"):
            names.setdefault(name.split("/")[2], []).append(name)
        began = (run for run, own in names.items() if len(own) > 1 or not _is_torn(store.read(own[0]) or b""))
        return tuple(sorted(began))

    @staticmethod
    def unfinished(store: StateStore, table_id: str) -> str | None:
        """Return the id of the latest run that has no ``run_finished`` record; None when all have.

        Raises:
            VerificationError: a record that was looked at is damaged.
        """
        began = reversed(Journal.runs(store, table_id))
        return next((run_id for run_id in began if not _has_ended(store, f"runs/{table_id}/{run_id}/")), None)

    def append(self, kind: str, **fields: Any) -> Record:
        """Add a record; units that are worked on at the same time may do so at the same time.

        Args:
            kind: one of ``KINDS``.
            **fields: JSON values; a record of a unit has its name under ``unit``.

        Raises:
            RunConflictError: another driver wrote the record of this number, so this one is fenced off.
        """
        if kind not in KINDS or (kind in UNIT_KINDS and not isinstance(fields.get("unit"), str)):
            raise SparkcryptError(
                f"run {self.run.run_id}: {kind!r} is no record of a journal; allowed: {', '.join(KINDS)}, those of "
                "units with the unit's name as unit"
            )
        with self._mutex:
            name, content = self._chain.next_record(kind, self._token, fields)
            if not self._store.create(name, content):
                raise RunConflictError(
                    f"run {self.run.run_id}: another driver wrote {name}, so it continues this run; this one stops and "
                    "changes nothing more"
                )
            return self._chain.take(name, content)

    def resume(self, fencing_token: int) -> Record:
        """Continue the run as the owner of a new lock, which fences off a driver that still believes to be its owner.

        Raises:
            RunConflictError: the token is older than the journal's, or another driver was faster.
        """
        if fencing_token < self._token:
            raise RunConflictError(
                f"run {self.run.run_id}: its journal was continued under fencing token {self._token}, this driver has "
                f"{fencing_token}; it stops and changes nothing"
            )
        self._token = fencing_token
        return self.append("run_resumed")


class _Chain:
    """The records of one run, each following from the one before."""

    def __init__(self, folder: str, run_id: str) -> None:
        self._folder, self._run_id = folder, run_id
        self.records: list[Record] = []
        self.torn_name: str | None = None
        self._last = b""
        self._torn = b""
        self._attempt = 0

    def load(self, store: StateStore) -> None:
        for name in sorted(store.list(self._folder), key=_place):
            number, attempt = _place(name)
            if (number, attempt) != (len(self.records) + 1, self._attempt):
                expected = self._name(len(self.records) + 1, self._attempt)
                raise VerificationError(f"{name}: stands where {expected} is missing; {_DAMAGED}")
            content = store.read(name) or b""
            if _is_torn(content):
                self._torn, self.torn_name, self._attempt = content, name, attempt + 1
            else:
                self.take(name, content)

    def take(self, name: str, content: bytes) -> Record:
        """Add the next record, which is in the store under that name, once it is seen to be the next one."""
        record = _parsed(name, content)
        problem = self._problem(record)
        if problem:
            raise VerificationError(f"{name}: {problem}; {_DAMAGED}")
        self.records.append(record)
        self._last, self._torn, self._attempt, self.torn_name = content, b"", 0, None
        return record

    def next_record(self, kind: str, token: int, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        number = len(self.records) + 1
        body = {
            "version": VERSION,
            "number": number,
            "time": datetime.now(timezone.utc).isoformat(),
            "kind": kind,
            "run_id": self._run_id,
            "fencing_token": token,
            "fields": fields,
            "previous": _digest(self._last),
            "supersedes": _digest(self._torn) if self._attempt else None,
        }
        return self._name(number, self._attempt), encode_record({**body, "checksum": _digest(encode_record(body))})

    def _problem(self, record: Record) -> str | None:
        tokens = [one.fencing_token for one in self.records[-1:]]
        if record.run_id != self._run_id:
            return f"belongs to run {record.run_id}"
        if record.number != len(self.records) + 1:
            return f"is record {record.number} under another's name"
        if record.previous != _digest(self._last):
            return "does not follow from the record before it, which was changed or replaced"
        if record.supersedes != (_digest(self._torn) if self._attempt else None):
            return "does not follow from the torn record whose number it takes"
        if tokens and record.fencing_token < tokens[0]:
            return "was written by a driver that had been fenced off"
        return None

    def _name(self, number: int, attempt: int) -> str:
        return f"{self._folder}{number:06d}{f'-retry{attempt}' if attempt else ''}.json"


def new_run_id(clock: Callable[[], float] = time.time) -> str:
    """Return a run id such as ``20261121T101112Z-3f9a2c``, where three digits are milliseconds and three are random."""
    now = clock()
    milliseconds = int(now * 1000) % 1000
    start = datetime.fromtimestamp(int(now), timezone.utc)
    return f"{start:%Y%m%dT%H%M%S}Z-{milliseconds:03x}{secrets.randbelow(0x1000):03x}"


def check_same_policy(journal: Journal, digest: str) -> None:
    """See that a run is continued under the policy with which it began.

    Raises:
        RunConflictError: the policy changed since.
    """
    if journal.run.policy_digest != digest:
        raise RunConflictError(
            f"{journal.run.table}: run {journal.run.run_id} is unfinished and began under policy "
            f"{journal.run.policy_digest}, which is now {digest}; finish it under the policy with which it began, "
            "then run again under the new one"
        )


def _place(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(name.rpartition("/")[2])
    if match is None:
        raise VerificationError(f"{name}: is not the name of a journal record; {_DAMAGED}")
    return int(match["number"]), int(match["attempt"] or 0)


def _has_ended(store: StateStore, folder: str) -> bool:
    for name in sorted(store.list(folder), key=_place, reverse=True):
        content = store.read(name) or b""
        if not _is_torn(content) and _parsed(name, content).kind == "run_finished":
            return True
    return False


def _is_torn(content: bytes) -> bool:
    """Tell whether bytes lack the end of a record: a line feed, the only one in it; damage within is no tear."""
    if b"\n" in content:
        return False
    try:
        return json.JSONDecoder().raw_decode(content.decode("latin-1"))[1] == len(content)
    except (ValueError, RecursionError):
        return True


def _parsed(name: str, content: bytes) -> Record:
    body = decode_record(name, content)
    version, checksum = body.pop("version", None), body.pop("checksum", None)
    if version != VERSION:
        raise VerificationError(f"{name}: has version {version!r}; allowed: {VERSION}; use the release that wrote it")
    if checksum != _digest(encode_record({**body, "version": version})):
        raise VerificationError(f"{name}: its checksum is wrong; {_DAMAGED}")
    try:
        record = Record(name=name, checksum=checksum, **body)
    except TypeError as error:
        raise VerificationError(f"{name}: has fields {sorted(body)}, which are not a record's; {_DAMAGED}") from error
    if record.kind not in KINDS or (record.kind in UNIT_KINDS and "unit" not in record.fields):
        raise VerificationError(f"{name}: its kind {record.kind!r} is not known; use the release that wrote it")
    return record


def _run_record(first: Record, table_id: str) -> RunRecord:
    try:
        run = RunRecord(run_id=first.run_id, fencing_token=first.fencing_token, **first.fields)
    except TypeError as error:
        raise VerificationError(f"{first.name}: does not say how the run was started; {_DAMAGED}") from error
    if run.table_id != table_id:
        raise VerificationError(f"{first.name}: belongs to table {run.table_id}; {_DAMAGED}")
    return run


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
