"""A run of the past, opened again under its table's lock: to dispose of its old files, or to put them back."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.backfill.assemble import runner_of
from sparkcrypt.backfill.context import RunContext
from sparkcrypt.backfill.in_use import Disposal, InUse, OtherTables
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.lock import RunLock, acquire
from sparkcrypt.backfill.migrate import Migrated, migrate_journals
from sparkcrypt.backfill.options import RunOptions
from sparkcrypt.backfill.progress import Progress, Silent
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.targets import CatalogTarget, Target, catalog_target, locations_of
from sparkcrypt.backfill.trust import TableTrust
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.spark.session import configure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PastRuns:
    """The runs of one table, and what is needed to work on them."""

    spark: SparkSession
    target: CatalogTarget
    policy: Policy
    store: StateStore
    lock: RunLock
    files: HadoopFiles
    progress: Progress
    trust: TableTrust
    others: OtherTables

    def ids(self) -> tuple[str, ...]:
        """Return the runs' ids, oldest first."""
        return Journal.runs(self.store, self.target.table_id)

    def journal(self, run_id: str) -> Journal:
        """Open a run's journal, to act on it.

        Raises:
            VerificationError: it is damaged, or not to be believed.
        """
        return self.trust.journal(run_id)

    def readable(self) -> tuple[Journal, ...]:
        """Return the journals of all runs, oldest first, less those that are not to be believed: see `trust.unread`."""
        found = []
        for run_id in self.ids():
            try:
                found.append(self.journal(run_id))
            except VerificationError as error:
                self.trust.unread[run_id] = str(error)
        return tuple(found)

    @contextmanager
    def runner(self, journal: Journal) -> Iterator[Runner]:
        """Yield what works on a run's units; its journal is continued under this lock, when something is written."""
        options = RunOptions().as_begun(journal.run.options)
        context = RunContext(
            self.spark,
            self.target,
            self.policy,
            self.store,
            journal,
            self.lock,
            self.progress,
            self.files,
            self.trust,
            self.others,
        )
        with context:
            yield runner_of(context, options, resumed=True)

    @property
    def in_use(self) -> InUse:
        """Asks the metastore which folders are in use."""
        return InUse(self.spark, self.target, self.others)

    def disposal(self, run_id: str) -> Disposal:
        """Return the only way by which folders of a run are deleted."""
        return Disposal(self.files, self.in_use, self.target.base, run_id, self.lock.check)


@contextmanager
def past_runs(
    spark: SparkSession,
    table: str,
    policy: Policy,
    what: str,
    progress: Progress | None = None,
) -> Iterator[PastRuns]:
    """Yield the runs of a table, under its lock.

    Args:
        spark: a classic session; it is configured with the policy.
        table: ``db.table``.
        policy: under which runs were made.
        what: is done with them, for whoever finds the table locked.
        progress: hears what is done.

    Raises:
        ConfigError: no run of the table is known.
        RunConflictError: a run holds the table, or one of an earlier release was interrupted in the middle of a swap.
    """
    configure(spark, policy)
    found = Catalog(spark).table(table)
    if found.uuid is None:
        raise ConfigError(f"{found.full_name} has no identity, so no run of it is known; nothing is to {what}")
    target = catalog_target(spark, found, policy, None)
    store = open_states(spark, policy.run_state, outside=target.base)
    if not Journal.runs(store, target.table_id):
        raise ConfigError(f"{target.name}: no run is known in this state directory; nothing is to {what}")
    trust = TableTrust(store, target.table_id, policy, target.base, partial(locations_of, spark, target))
    owner = f"{getpass.getuser()}@{socket.gethostname()}"
    with acquire(store, target.table_id, run_id=what, owner=owner) as lock:
        lock.keep_alive()
        trust.mac(renew=True)
        migrate_journals(trust, target.name)
        others = OtherTables(spark)
        yield PastRuns(spark, target, policy, store, lock, HadoopFiles(spark), progress or Silent(), trust, others)


def migrate_target(spark: SparkSession, target: Target, policy: Policy) -> Migrated:
    """Check the journals of an earlier release, those too that were interrupted in the middle of a swap.

    Args:
        spark: a classic session; it is configured with the policy.
        target: a table or a directory.
        policy: under which runs were made.

    Raises:
        RunConflictError: a run holds the target.
        VerificationError: its audit is damaged.
    """
    store = open_states(spark, policy.run_state, outside=target.base)
    trust = TableTrust(store, target.table_id, policy, target.base, partial(locations_of, spark, target))
    with acquire(store, target.table_id, run_id="migrate", owner=f"{getpass.getuser()}@{socket.gethostname()}") as lock:
        lock.keep_alive()
        return migrate_journals(trust, target.name, accept_begun=True)
