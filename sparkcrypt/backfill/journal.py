"""The journal of a run: numbered, checksummed, chained records, from which a killed run is continued."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.backfill.store import StateStore
from sparkcrypt.errors import RunConflictError, VerificationError

VERSION = 1
FINAL = ("run_finished",)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run was started with."""

    table_id: str
    table: str
    run_id: str
    policy_digest: str
    plan: dict[str, Any]
    options: dict[str, Any]
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a journal."""

    number: int
    time: str
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnitState:
    """The last step of a unit, with the fields that its steps left."""

    step: str
    fields: Mapping[str, Any]


class Journal:
    """A run's records, in memory and in the store."""

    def __init__(self, store: StateStore, run: RunRecord, records: list[Record], last: bytes) -> None:
        self._store, self.run, self._records, self._last = store, run, records, last

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record, oldest first."""
        return tuple(self._records)

    @classmethod
    def start(cls, store: StateStore, run: RunRecord) -> Journal:
        """Begin the journal of a new run."""
        journal = cls(store, run, [], b"")
        journal.append("run_started", **asdict(run))
        return journal

    @classmethod
    def open(cls, store: StateStore, table_id: str, run_id: str) -> Journal:
        """Read the journal of a run.

        Raises:
            VerificationError: a record is damaged, missing, or does not follow the one before; a torn last record is
                passed over, and its number is used again under another name.
        """
        names = store.list(f"runs/{table_id}/{run_id}/")
        records: list[Record] = []
        last = b""
        for place, name in enumerate(names):
            content = store.read(name) or b""
            torn = place == len(names) - 1 and _torn(content)
            if torn:
                store.delete(name)
                break
            records.append(_checked(name, content, len(records) + 1, last))
            last = content
        if not records or records[0].kind != "run_started":
            raise VerificationError(f"run {run_id}: its journal has no beginning; the state directory was damaged")
        return cls(store, RunRecord(**records[0].fields), records, last)

    @staticmethod
    def unfinished(store: StateStore, table_id: str) -> str | None:
        """Return the id of a table's latest run when it has not ended."""
        runs = sorted({name.split("/")[2] for name in store.list(f"runs/{table_id}/")})
        if not runs:
            return None
        journal = Journal.open(store, table_id, runs[-1])
        return None if any(record.kind in FINAL for record in journal.records) else runs[-1]

    def append(self, kind: str, **fields: Any) -> Record:
        """Add a record.

        Raises:
            RunConflictError: another driver wrote the record of this number; this one is fenced off.
        """
        record = Record(len(self._records) + 1, datetime.now(timezone.utc).isoformat(), kind, fields)
        body = {
            "version": VERSION,
            "number": record.number,
            "time": record.time,
            "kind": kind,
            "run_id": self.run.run_id,
            "fencing_token": self.run.fencing_token,
            "fields": fields,
            "previous": hashlib.sha256(self._last).hexdigest(),
        }
        content = _sealed(body)
        name = f"runs/{self.run.table_id}/{self.run.run_id}/{record.number:06d}.json"
        if not self._store.create(name, content):
            raise RunConflictError(f"run {self.run.run_id}: another driver continues it; this one stops and changes nothing more")
        self._records.append(record)
        self._last = content
        return record


def new_run_id() -> str:
    """Return a run id; later ones sort after earlier ones."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}{datetime.now(timezone.utc).microsecond // 1000:03d}Z-{secrets.token_hex(3)}"


def check_same_policy(journal: Journal, digest: str) -> None:
    """See that a run is continued under the policy with which it began.

    Raises:
        RunConflictError: the policy changed since.
    """
    if journal.run.policy_digest != digest:
        raise RunConflictError(
            f"run {journal.run.run_id} is unfinished and began under another policy; finish it under that one, or start a new "
            "run with --resume never, which first brings the unfinished one to a clean state"
        )


def state_of_units(records: Iterable[Record]) -> dict[str, UnitState]:
    """Return unit -> its last step, with all fields that its steps left, later ones over earlier ones."""
    states: dict[str, UnitState] = {}
    for record in records:
        unit = record.fields.get("unit")
        if unit is not None:
            known = states[unit].fields if unit in states and record.kind != "unit_listed" else {}
            states[unit] = UnitState(record.kind, {**known, **record.fields})
    return states


def _sealed(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return json.dumps({"record": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}, ensure_ascii=False).encode()


def _torn(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return True
    return False


def _checked(name: str, content: bytes, number: int, last: bytes) -> Record:
    try:
        envelope = json.loads(content)
        text, checksum = envelope["record"], envelope["sha256"]
        body = json.loads(text)
        record = Record(body["number"], body["time"], body["kind"], body["fields"])
        previous, version = body["previous"], body["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise VerificationError(f"{name}: is not a journal record ({type(error).__name__}); the state directory was damaged") from error
    if version != VERSION:
        raise VerificationError(f"{name}: has version {version}; allowed: {VERSION}; use the release that wrote it")
    if hashlib.sha256(text.encode()).hexdigest() != checksum:
        raise VerificationError(f"{name}: its checksum is wrong; the state directory was damaged")
    if record.number != number or previous != hashlib.sha256(last).hexdigest():
        raise VerificationError(f"{name}: does not follow the record before it; one was lost or changed")
    return record
