"""The context of a run: what its steps share, and how they record a change in audit and journal."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
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
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.lock import RunLock
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac
from sparkcrypt.ledger.unit import Unit, UnitOutcome
from sparkcrypt.names import PREDECESSOR
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.footers import RetrieveKey, fresh_keys
from sparkcrypt.runs.table.open_table import OpenTable

ANSWER_SECONDS = 30.0
"""How old a metastore answer may be if many units use the same one."""


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
        if self.journal.last.fencing_token != self.lock.token:
            self.journal.resume(self.lock.token)
        return self.journal

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


def record_swaps(run: RunContext, outcomes: Sequence[UnitOutcome]) -> None:
    """Record that units were swapped: for each a step of the run, which is the audit's entry of it as well."""
    with run.one_at_a_time:
        digest, name, predecessor = run.table.policy.digest(), run.table.target.name, _find_predecessor(run)
        run.journal.write_all([UnitSwapped(outcome, name, digest, predecessor) for outcome in outcomes])


def append_audit(
    run: RunContext, what: str, engine: str, unit: Mapping[str, Any], digests: Any, changes: list[dict[str, Any]]
) -> None:
    """Append an entry to the table's audit.

    Args:
        run: the run's context.
        what: ``carry over``, ``roll back``, ``relocate`` or ``resolve``.
        engine: the engine that wrote the new files; ``none`` if no file was written.
        unit: the unit, as JSON values.
        digests: how the digests of files were made; None if there are none.
        changes: which new files were made from which old files.
    """
    predecessor = _find_predecessor(run)
    entry = make_entry(
        what,
        run.table.policy.digest(),
        run.run_id,
        table=run.table.target.name,
        engine=engine,
        unit=dict(unit),
        digests=digests,
        changes=changes,
        **({} if predecessor is None else {"predecessor": predecessor}),
    )
    with run.one_at_a_time:
        run.audit.append(entry)


def _find_predecessor(run: RunContext) -> str | None:
    """Return the id of the table in the place of which the run's table was made; None if there is none."""
    table = run.table.target.table
    return None if table is None else table.properties.get(PREDECESSOR)
