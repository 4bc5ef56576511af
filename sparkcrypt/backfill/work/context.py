"""What every step of a run works with, and what it makes once: the digest secret, the audit's MAC, a fresh helper."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from sparkcrypt.backfill.audit.audit import AuditWriter
from sparkcrypt.backfill.audit.evidence import DigestSecret
from sparkcrypt.backfill.audit.trust import TableTrust
from sparkcrypt.backfill.drift.footers import RetrieveKey, fresh_keys
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.unit_steps import UnitState, state_of_units
from sparkcrypt.backfill.report.progress import Progress
from sparkcrypt.backfill.state.lock import RunLock
from sparkcrypt.backfill.state.mac import MasterKeys, TableMac
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.disposal import Disposal
from sparkcrypt.backfill.target.in_use import InUse, OtherTables
from sparkcrypt.backfill.target.target import Target
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 30.0
"""How old an answer of the metastore may be that is the same for many units."""


@dataclass(slots=True)
class RunContext:
    """One run over one target, under its lock; units that are worked on at the same time share it.

    Attributes:
        others: the folders of all other tables; a pass asks for them once.
        one_at_a_time: held by whoever swaps, or writes to the audit: statistics are the whole table's, and audit
            entries are numbered.
    """

    spark: SparkSession
    target: Target
    policy: Policy
    store: StateStore
    journal: Journal
    lock: RunLock
    progress: Progress
    files: HadoopFiles
    trust: TableTrust
    others: OtherTables
    one_at_a_time: threading.RLock = field(default_factory=threading.RLock)
    _secret: DigestSecret | None = None
    _audit: AuditWriter | None = None
    _keys: RetrieveKey | None = None
    _in_use: InUse | None = None
    _later: tuple[Mapping[str, UnitState], ...] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> RunContext:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the helper."""
        self._stack.close()
        self._keys = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.journal.run.run_id

    @property
    def moves_old(self) -> bool:
        """The run was asked to move old files out of the table's folder."""
        return self.journal.run.moves_old

    @property
    def in_use(self) -> InUse:
        """Asks the metastore which folders are in use."""
        if self._in_use is None:
            self._in_use = InUse(self.spark, self.target, self.others)
        return self._in_use

    @property
    def disposal(self) -> Disposal:
        """The only way by which this run deletes a folder."""
        return Disposal(self.files, self.in_use, self.target.base, self.run_id, self.lock.check)

    def continue_journal(self) -> Journal:
        """Return the journal, continued under this lock; done once, before something is written to a past run's.

        Raises:
            RunConflictError: another driver continues it.
        """
        if self.journal.records[-1].fencing_token != self.lock.token:
            self.journal.resume(self.lock.token)
        return self.journal

    def later_units(self) -> tuple[Mapping[str, UnitState], ...]:
        """Return how far the units of each later run of the table have come, oldest first; opened once.

        Raises:
            VerificationError: the journal of one is damaged.
        """
        with self.one_at_a_time:
            if self._later is None:
                later = (run_id for run_id in Journal.runs(self.store, self.target.table_id) if run_id > self.run_id)
                self._later = tuple(state_of_units(self.trust.journal(run_id).records) for run_id in later)
            return self._later

    @property
    def secret(self) -> DigestSecret:
        """The secret under which this execution's digests are made."""
        with self.one_at_a_time:
            if self._secret is None:
                masters = MasterKeys.of(self.policy)
                self._secret = DigestSecret.make(open_key_service(self.policy.key_service), masters.current)
            return self._secret

    @property
    def mac(self) -> TableMac:
        """What authenticates the audit; under the table's lock nobody else gives it a new key."""
        with self.one_at_a_time:
            return self.trust.mac(renew=True)

    @property
    def audit(self) -> AuditWriter:
        """The table's audit; under the table's lock nobody else appends to it."""
        with self.one_at_a_time:
            if self._audit is None:
                self._audit = AuditWriter(self.store, self.target.table_id, self.mac)
            return self._audit

    @property
    def fresh_keys(self) -> RetrieveKey:
        """Keys from a helper process that this execution alone uses to verify, so that no cache here can answer."""
        with self.one_at_a_time:
            if self._keys is None:
                self._keys = self._stack.enter_context(fresh_keys(self.policy.key_service))
            return self._keys
