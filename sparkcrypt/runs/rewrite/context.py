"""The context of a run: what its steps share, including the digest secret, the audit's MAC and a helper process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import AuditWriter
from sparkcrypt.ledger.audit.evidence import DigestSecret
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.ledger.state.lock import RunLock
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac
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
                later = (
                    run_id
                    for run_id in Journal.runs(self.table.store, self.table.target.table_id)
                    if run_id > self.run_id
                )
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

    @property
    def audit(self) -> AuditWriter:
        """The writer of the table's audit; under the table's lock no other process appends to it."""
        with self.one_at_a_time:
            if self._audit is None:
                self._audit = AuditWriter(self.table.store, self.table.target.table_id, self.mac)
            return self._audit

    @property
    def fresh_keys(self) -> RetrieveKey:
        """Keys from a helper process that only verification uses, so that they do not come from a cache here."""
        with self.one_at_a_time:
            if self._keys is None:
                self._keys = self._stack.enter_context(fresh_keys(self.table.policy.key_service))
            return self._keys
