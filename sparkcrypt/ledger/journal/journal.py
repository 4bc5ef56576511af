"""The journal of a run: numbered, chained, authenticated records from which a killed run is continued.

    runs/<table id>/<run id>/000001.json          first record, of kind ``run_started``
    runs/<table id>/<run id>/000007-retry1.json   record 7, if ``000007.json`` is torn

Module ``record`` defines the members of a record; ``entries`` and ``later_entries`` define the fields of each kind.
Each record is created exclusively: if two drivers continue one run, only one can write record *n*, and the other is
fenced off.  A *torn* record was cut off before its end (after a power cut, on a file system that stores a name before
the content).  Only the last record may be torn.  It is never deleted, since a slow driver could then delete the good
record that replaced it.  Its number is used again under the name ``-retry1`` (``-retry2`` …), also created exclusively,
and ``supersedes`` pins the torn bytes: a torn record that changes later is damage.

The chain detects accidental damage anywhere in the journal; the MAC of the table's audit detects records written by an
attacker who can only write to the state directory.  Neither detects that the last records are missing (as after a
crash).  The audit does: its entries name the journal record after which they were written (``trust``).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.archive import list_archived_runs, read_archive
from sparkcrypt.ledger.journal.chain import JournalChain
from sparkcrypt.ledger.journal.entries import Entry
from sparkcrypt.ledger.journal.record import (
    DAMAGED,
    KINDS,
    RUN_KINDS,
    UNIT_KINDS,
    VERSION,
    Record,
    is_torn,
    parse_record,
    place_of,
)
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import StateStore

__all__ = ["KINDS", "RUN_KINDS", "UNIT_KINDS", "VERSION", "Journal", "Record", "RunRecord"]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The inputs of a run; ``plan`` and ``options`` are JSON values, fixed in the journal's first record."""

    table_id: str
    table: str
    run_id: str
    policy_digest: str
    plan: dict[str, Any]
    options: dict[str, Any]
    fencing_token: int

    @property
    def where(self) -> str | None:
        """The predicate that selects the run's partitions."""
        return self.options.get("where")

    @property
    def output(self) -> str | None:
        """The folder to which the run copies; None for a run that swaps."""
        return self.options.get("output") or None

    @property
    def allows_decryption(self) -> bool:
        """Whether the run was allowed to decrypt columns, and so is what comes late to its old folders."""
        return bool(self.options.get("allow_decrypt"))

    @property
    def moves_old(self) -> bool:
        """Whether the run moves old files out of the table's folder."""
        return bool(self.options.get("move_old"))


class Journal:
    """The records of a run, created by ``start`` or read by ``open``."""

    def __init__(self, store: StateStore, run: RunRecord, chain: JournalChain) -> None:
        self._store, self._chain, self.run = store, chain, run
        self._mutex = threading.Lock()
        self._token = max([run.fencing_token, *(record.fencing_token for record in chain.records)])

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record, oldest first."""
        return tuple(self._chain.records)

    @property
    def torn(self) -> str | None:
        """The name of the torn last record, whose number the next record takes; None if there is none."""
        return self._chain.torn_name

    @property
    def authenticated(self) -> bool:
        """Whether each record has the audit's MAC; if not, the journal may only be shown."""
        return self._chain.mac is not None

    @property
    def archived(self) -> bool:
        """Whether only the archive is left, without lists of files: the old files have expired, nothing is appended."""
        return self._chain.archived

    @classmethod
    def start(cls, store: StateStore, run: RunRecord, mac: TableMac | None = None) -> Journal:
        """Begin the journal of a new run.

        Args:
            store: the state directory.
            run: the run's inputs.
            mac: the MAC of the table's audit; commands that act on records refuse those written without it.

        Raises:
            RunConflictError: a run of that id exists.
        """
        journal = cls(store, run, JournalChain(run.table_id, run.run_id, mac))
        fields = {name: value for name, value in asdict(run).items() if name not in ("run_id", "fencing_token")}
        journal.append("run_started", **fields)
        return journal

    @classmethod
    def open(cls, store: StateStore, table_id: str, run_id: str, mac: TableMac | None = None) -> Journal:
        """Read the journal of a run and check every record.

        Args:
            store: the state directory.
            table_id: the table's id.
            run_id: the run's id.
            mac: the MAC of the table's audit; without it the journal may be shown, but not acted on.

        Raises:
            VerificationError: a record is missing, damaged, not authentic, not in the chain, or of an unknown version
                or kind; the message names the file.
        """
        chain = JournalChain(table_id, run_id, mac)
        if chain.load_archive(store):
            return cls(store, _run_record(chain.records[0], table_id), chain)
        chain.load(store)
        if not chain.records or chain.records[0].kind != "run_started":
            raise VerificationError(f"{chain.folder}: the journal's first record is not whole or not there; {DAMAGED}")
        return cls(store, _run_record(chain.records[0], table_id), chain)

    @staticmethod
    def runs(store: StateStore, table_id: str, *, archived: bool = True) -> tuple[str, ...]:
        """Return the ids of a table's runs, oldest first, except those that never began: their only record is torn.

        Args:
            store: the state directory.
            table_id: the table's id.
            archived: include runs of which only an archive is left.
        """
        names: dict[str, list[str]] = {}
        for name in store.list(f"runs/{table_id}/"):
            names.setdefault(name.split("/")[2], []).append(name)
        began = (run for run, own in names.items() if len(own) > 1 or not is_torn(store.read(own[0]) or b""))
        return tuple(sorted({*began, *(list_archived_runs(store, table_id) if archived else ())}))

    @staticmethod
    def find_table(store: StateStore, table_id: str, run_id: str) -> str:
        """Return the table's name at the start of a run, from its first record alone, which is not authenticated.

        Raises:
            VerificationError: there is no such record, or it is damaged.
        """
        archived = read_archive(store, table_id, run_id, None)
        if archived:
            return _run_record(archived[0], table_id).table
        folder = f"runs/{table_id}/{run_id}/"
        for name in sorted(store.list(folder), key=place_of):
            content = store.read(name) or b""
            if not is_torn(content):
                return _run_record(parse_record(name, content, table_id, None), table_id).table
        raise VerificationError(f"{folder}: the journal's first record is not whole or not there; {DAMAGED}")

    @staticmethod
    def find_unfinished(store: StateStore, table_id: str, mac: TableMac | None = None) -> str | None:
        """Return the id of the latest run that has no ``run_finished`` record; None if all have one.

        A run whose records are damaged, or not authentic if ``mac`` is given, is skipped: it cannot be continued, and
        must not prevent other runs from being continued.
        """
        for run_id in reversed(Journal.runs(store, table_id, archived=False)):
            try:
                if not Journal.has_ended(store, table_id, run_id, mac):
                    return run_id
            except VerificationError:
                continue
        return None

    @staticmethod
    def has_ended(store: StateStore, table_id: str, run_id: str, mac: TableMac | None = None) -> bool:
        """Return whether a run has a ``run_finished`` record, reading back from its newest record.

        If ``mac`` is given, only a record under its newest key counts.  One under an earlier key ends a run only if the
        whole journal is authentic, which `open` checks.

        Raises:
            VerificationError: a record that was read is damaged, of another run, or not authentic.
        """
        check_mac, newest = (None, 0) if mac is None else (mac.check, mac.newest)
        for name in sorted(store.list(f"runs/{table_id}/{run_id}/"), key=place_of, reverse=True):
            content = store.read(name) or b""
            if is_torn(content):
                continue
            record = parse_record(name, content, table_id, check_mac)
            if record.run_id != run_id:
                raise VerificationError(f"{name}: belongs to run {record.run_id}; {DAMAGED}")
            if record.kind == "run_finished":
                if record.generation == newest:
                    return True
                break
        try:
            return read_archive(store, table_id, run_id, check_mac) is not None
        except VerificationError:
            return False  # the archive is not authentic, so the journal alone counts

    def write(self, entry: Entry) -> Record:
        """Append an entry as a record; see `append`."""
        return self.append(entry.kind, **entry.to_dict())

    def append(self, kind: str, **fields: Any) -> Record:
        """Append a record; threads may call this concurrently.

        Args:
            kind: one of ``KINDS``.
            **fields: JSON values; a record of a unit has the unit's name under ``unit``.

        Raises:
            RunConflictError: another driver wrote the record of this number, so this driver is fenced off; or the run
                has expired.
        """
        if kind not in KINDS or (kind in UNIT_KINDS and not isinstance(fields.get("unit"), str)):
            raise SparkcryptError(
                f"run {self.run.run_id}: {kind!r} is no record of a journal; allowed: {', '.join(KINDS)}, those of "
                "units with the unit's name as unit"
            )
        if self.archived:
            raise RunConflictError(
                f"run {self.run.run_id}: its old files have expired, so nothing more is done with it"
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
        """Continue the run under a new lock, whose token fences off the driver that held an earlier one.

        Raises:
            RunConflictError: the token is older than the journal's, or another driver wrote the next record.
        """
        if fencing_token < self._token:
            raise RunConflictError(
                f"run {self.run.run_id}: its journal was continued under fencing token {self._token}, this driver has "
                f"{fencing_token}; it stops and changes nothing"
            )
        self._token = fencing_token
        return self.append("run_resumed")


def new_run_id(clock: Callable[[], float] = time.time) -> str:
    """Return a run id such as ``20261121T101112Z-3f9a2c``: three hex digits of milliseconds, then three random ones."""
    now = clock()
    milliseconds = int(now * 1000) % 1000
    start = datetime.fromtimestamp(int(now), timezone.utc)
    return f"{start:%Y%m%dT%H%M%S}Z-{milliseconds:03x}{secrets.randbelow(0x1000):03x}"


def list_run_ids(store: StateStore) -> frozenset[str]:
    """Return the ids of the runs that a state directory knows, of any table."""
    names = (name for kind in ("runs/", "archive/") for name in store.list(kind))
    return frozenset(name.split("/")[2].removesuffix(".json") for name in names)


def start_of_run(run_id: str) -> int:
    """Return when a run began by its id, in milliseconds since the epoch; a second may be missing."""
    return int(datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp() * 1000)


def check_same_policy(journal: Journal, digest: str) -> None:
    """Check that a run is continued under the policy with which it began.

    Raises:
        RunConflictError: the policy has changed since.
    """
    if journal.run.policy_digest != digest:
        raise RunConflictError(
            f"{journal.run.table}: run {journal.run.run_id} is unfinished and began under policy "
            f"{journal.run.policy_digest}, which is now {digest}; finish it under the policy with which it began, "
            "or give --resume never, which settles its units, closes it and begins another run"
        )


def _run_record(first: Record, table_id: str) -> RunRecord:
    try:
        run = RunRecord(run_id=first.run_id, fencing_token=first.fencing_token, **first.fields)
    except TypeError as error:
        raise VerificationError(f"{first.name}: does not say how the run was started; {DAMAGED}") from error
    if run.table_id != table_id:
        raise VerificationError(f"{first.name}: belongs to table {run.table_id}; {DAMAGED}")
    return run
