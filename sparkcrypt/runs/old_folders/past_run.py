"""Access to past runs under their table's lock, to delete their old files or to put them back into use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.actor import acting_user
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.lock import RunLock, acquire
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.problems import Problems, problems_of_target
from sparkcrypt.runs.rewrite.build_rewriter import rewriter_of
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.follow_rename import has_moved, settle_places
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.runs.table.progress import Progress, Silent
from sparkcrypt.runs.table.target import Target, catalog_target, locations_of
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import refuse_shared_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PastRuns:
    """The runs of one table, and the objects needed to work on them."""

    spark: SparkSession
    target: Target
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
            VerificationError: it is damaged or not authentic.
        """
        return self.trust.journal(run_id)

    def list_readable(self) -> tuple[Journal, ...]:
        """Return the journals of all runs, oldest first, except untrusted ones, which are noted in `trust.unread`."""
        found = []
        for run_id in self.ids():
            try:
                found.append(self.journal(run_id))
            except VerificationError as error:
                self.trust.unread[run_id] = str(error)
        return tuple(found)

    def problems(self) -> Problems:
        """Return the table's problems."""
        return problems_of_target(self.target, self.store, self.trust.mac, self.files)

    @contextmanager
    def rewriter(self, journal: Journal) -> Iterator[UnitRewriter]:
        """Yield the rewriter of a past run's units; the caller continues the run's journal before it writes to it."""
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
            yield rewriter_of(context, options, resumed=True)

    @property
    def in_use(self) -> InUse:
        """Lookup of the folders that are in use, by the metastore."""
        return InUse(self.spark, self.target, self.others)

    def disposal(self, run_id: str) -> Disposal:
        """Return the object used to delete folders of a run; none is deleted without it."""
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
        policy: the policy under which the runs were made.
        what: the name of the operation, shown to other commands that find the table locked.
        progress: receives progress updates.

    Raises:
        ConfigError: no run of the table is known.
        PlanError: the table has the UUID of another.
        RunConflictError: a run holds the table.
    """
    configure(spark, policy)
    found = Catalog(spark).table(table)
    if found.uuid is None:
        raise ConfigError(f"{found.full_name} has no identity, so no run of it is known; nothing is to {what}")
    refuse_shared_identity(spark, found)
    target = catalog_target(spark, found, policy, None)
    store = open_state_directory(spark, policy.run_state, outside=target.base)
    if not any(store.list(f"{kept}/{target.table_id}/") for kept in ("runs", "archive", "audit", "problems")):
        raise ConfigError(f"{target.name}: no run is known in this state directory; nothing is to {what}")
    others = OtherTables(spark, policy.aliases)
    trust = trust_of(spark, target, policy, store, others)
    owner = acting_user()
    with acquire(store, target.table_id, run_id=what, owner=owner) as lock:
        lock.keep_alive()
        trust.mac(renew=True)
        runs = PastRuns(spark, target, policy, store, lock, HadoopFiles(spark), progress or Silent(), trust, others)
        for journal in runs.list_readable():
            if not journal.archived and has_moved(journal, target.base):
                with runs.rewriter(journal) as rewriter:
                    settle_places(rewriter)
        yield runs


def trust_of(spark: SparkSession, target: Target, policy: Policy, store: StateStore, others: OtherTables) -> TableTrust:
    """Return the trust of a target's records; the metastore is queried only for paths outside the target's folder.

    Args:
        spark: a classic session.
        target: a table or a folder.
        policy: the policy that names the master keys of its audit.
        store: the state directory.
        others: the folders of other tables.
    """
    locations = partial(locations_of, spark, target)
    return TableTrust(store, target.table_id, policy, target.base, locations, InUse(spark, target, others).is_free)
