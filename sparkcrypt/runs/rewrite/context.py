"""The context of a run: what its steps share, and how they record a change in audit and journal."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.audit.evidence import DigestSecret, describe_dark_columns, list_columns
from sparkcrypt.ledger.audit.pins import make_pin
from sparkcrypt.ledger.journal.entries import Proven, UnitSwapped
from sparkcrypt.ledger.journal.journal import Journal, Record
from sparkcrypt.ledger.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.lock import RunLock
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac
from sparkcrypt.ledger.unit import Unit, UnitOutcome, path_below
from sparkcrypt.names import PREDECESSOR
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.footers import RetrieveKey, fresh_keys
from sparkcrypt.runs.table.open_table import OpenTable

ANSWER_SECONDS = 30.0
"""How old a metastore answer may be if many units use the same one."""


_PINNED = ("unit_swapping", "unit_rolling_back")
"""Kinds of records that pins name: what follows changes the metastore."""


@dataclass(slots=True)
class RunContext:
    """The context of one run over one target, under its lock; units that are processed concurrently share it.

    Attributes:
        table: the table or folder.
        journal: the run's journal.
        lock: the table's lock.
        one_at_a_time: the mutex for swaps and audit writes: statistics belong to the whole table, and audit entries
            are numbered.
    """

    table: OpenTable
    journal: Journal
    lock: RunLock
    one_at_a_time: threading.RLock = field(default_factory=threading.RLock)
    _secret: DigestSecret | None = None
    _audit: AuditWriter | None = None
    _keys: RetrieveKey | None = None
    _later: tuple[Mapping[str, UnitStatus], ...] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> RunContext:
        """Return the context; the helper process is started when its keys are first needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the helper process."""
        self._stack.close()
        self._keys = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.journal.run.run_id

    @property
    def moves_old(self) -> bool:
        """Whether the run moves old files out of the table's folder."""
        return self.journal.run.moves_old

    @property
    def disposal(self) -> Disposal:
        """The object used to delete folders; the run deletes none without it."""
        return Disposal(self.table.files, self.table.in_use, self.table.target.base, self.run_id, self.lock.check)

    def continue_journal(self) -> Journal:
        """Return the journal, continued under this lock if needed; used before writing to the journal of a past run.

        Raises:
            RunConflictError: another driver continues it.
        """
        if self.journal.records[-1].fencing_token != self.lock.token:
            self.journal.resume(self.lock.token)
        return self.journal

    def later_units(self) -> tuple[Mapping[str, UnitStatus], ...]:
        """Return the statuses of the units of each later run of the table, oldest run first; journals are read once.

        Raises:
            VerificationError: the journal of a later run is damaged.
        """
        with self.one_at_a_time:
            if self._later is None:
                later = (run_id for run_id in Journal.runs(self.table.trust.log()) if run_id > self.run_id)
                self._later = tuple(status_of_units(self.table.trust.journal(run_id).records) for run_id in later)
            return self._later

    @property
    def secret(self) -> DigestSecret:
        """The secret used to make this execution's digests."""
        with self.one_at_a_time:
            if self._secret is None:
                masters = MasterKeys.of(self.table.policy)
                self._secret = DigestSecret.make(open_key_service(self.table.policy.key_service), masters.current)
            return self._secret

    @property
    def mac(self) -> TableMac:
        """The audit's MAC; its key is renewed if necessary, which is safe under the table's lock."""
        with self.one_at_a_time:
            return self.table.trust.mac(renew=True)

    def pin(self, new: NewFiles, record: Record) -> NewFiles:
        """Return new files whose swap sets a pin that names a record."""
        return replace(new, pin=make_pin(self.mac, self.table.target.table_id, new.unit.partition_path, record))

    @property
    def audit(self) -> AuditWriter:
        """The writer of the table's audit; under the table's lock no other process appends to it."""
        with self.one_at_a_time:
            if self._audit is None:
                self._audit = AuditWriter(self.journal.log, self.lock.token)
            return self._audit

    @property
    def fresh_keys(self) -> RetrieveKey:
        """Keys from a helper process that only verification uses, so that they do not come from a cache here."""
        with self.one_at_a_time:
            if self._keys is None:
                self._keys = self._stack.enter_context(fresh_keys(self.table.policy.key_service))
            return self._keys


def outcome_of(unit: Unit, proven: Proven, old: str, new: str, bytes_after: int) -> UnitOutcome:
    """Return the outcome of a unit whose proven files are in use.

    Args:
        unit: the unit as it was listed.
        proven: the facts about its new files.
        old: the folder of its old files.
        new: the folder of its new files.
        bytes_after: length of the new files, in bytes.
    """
    return UnitOutcome(
        name=unit.name,
        files=len(unit.files),
        rows=proven.rows,
        bytes_before=unit.total_bytes,
        bytes_after=bytes_after,
        old_location=old,
        new_location=new,
        verified=True,
        codec=proven.codec,
        notes=(*proven.notes, *describe_dark_columns(proven.evidence)),
        engine=proven.engine,
        dark_columns=list_columns(proven.evidence, "dark_columns"),
        purged_columns=list_columns(proven.evidence, "purged_columns"),
    )


def record_swap(run: RunContext, unit: Unit, staged: str, outcome: UnitOutcome, evidence: Mapping[str, Any]) -> None:
    """Record in audit and journal that a unit was swapped."""
    changes = place_changes(evidence.get("changes", ()), unit, staged, outcome.old_location, outcome.new_location)
    with run.one_at_a_time:
        append_audit(run, "encrypt", outcome.engine, outcome.to_dict(), evidence.get("digests"), changes)
        run.journal.write(UnitSwapped(outcome))


def append_audit(
    run: RunContext, what: str, engine: str, unit: Mapping[str, Any], digests: Any, changes: list[dict[str, Any]]
) -> None:
    """Append an entry to the table's audit.

    Args:
        run: the run's context.
        what: ``encrypt``, ``carry over``, ``roll back``, ``relocate`` or ``resolve``.
        engine: the engine that wrote the new files; ``none`` if no file was written.
        unit: the unit, as JSON values.
        digests: how the digests of files were made; None if there are none.
        changes: which new files were made from which old files.
    """
    pinned = _find_pinned(run.journal.records, unit)
    predecessor = None if run.table.target.table is None else run.table.target.table.properties.get(PREDECESSOR)
    entry = make_entry(
        what,
        run.table.policy.digest(),
        run.run_id,
        table=run.table.target.name,
        engine=engine,
        unit=dict(unit),
        digests=digests,
        changes=changes,
        **({} if pinned is None else {"pinned": [pinned]}),
        **({} if predecessor is None else {"predecessor": predecessor}),
    )
    with run.one_at_a_time:
        run.audit.append(entry)


def _find_pinned(records: Iterable[Record], unit: Mapping[str, Any]) -> str | None:
    """Return the digest of the record before a unit's last swap or rollback, which its pin names."""
    before = (record for record in records if record.kind in _PINNED and record.unit == unit["unit"])
    return next((record.digest for record in reversed(tuple(before))), None)


def place_changes(
    changes: Iterable[Mapping[str, Any]], unit: Unit, staged: str, old_location: str, new_location: str
) -> list[dict[str, Any]]:
    """Return a unit's changes with the paths of its files after the swap.

    Of a source, ``path`` is where it was listed and ``kept`` where it is now; of a target, ``staged`` is where it was
    made and ``path`` where it is now.
    """

    def move_path(location: str, file: Mapping[str, Any], folder: str) -> str:
        return f"{location.rstrip('/')}/{path_below(folder, str(file['path']))}"

    return [
        {
            **change,
            "sources": [{**file, "kept": move_path(old_location, file, unit.location)} for file in change["sources"]],
            "targets": [
                {**file, "staged": file["path"], "path": move_path(new_location, file, staged)}
                for file in change["targets"]
            ],
        }
        for change in changes
    ]
