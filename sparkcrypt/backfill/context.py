"""What every step of a run works with, and what it makes once: the digest secret, the audit's MAC, a fresh helper."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from sparkcrypt.backfill.audit import AuditWriter
from sparkcrypt.backfill.evidence import DigestSecret
from sparkcrypt.backfill.footers import RetrieveKey, fresh_keys
from sparkcrypt.backfill.in_use import Disposal, InUse, OtherTables
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.lock import RunLock
from sparkcrypt.backfill.mac import MasterKeys, TableMac
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.targets import Target
from sparkcrypt.backfill.trust import TableTrust
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        return bool(self.journal.run.options.get("move_old"))

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
