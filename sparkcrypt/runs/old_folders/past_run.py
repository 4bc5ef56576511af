"""Access to past runs under their table's lock, to delete their old files or to put them back into use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.audit.pins import LostPin, digest_of_pin
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import ACCEPT
from sparkcrypt.ledger.state.lock import RunLock, acquire, acting_user
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.problems import Problems, problems_of_target
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.recover import has_moved, settle_places
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter, rewriter_of
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.in_use import OtherTables
from sparkcrypt.runs.table.open_table import OpenTable, open_target
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import refuse_shared_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PastRuns:
    """The runs of one table, under its lock."""

    table: OpenTable
    lock: RunLock

    def ids(self) -> tuple[str, ...]:
        """Return the runs' ids, oldest first."""
        return Journal.runs(self.table.trust.log())

    def journal(self, run_id: str) -> Journal:
        """Open a run's journal, to act on it.

        Raises:
            VerificationError: it is damaged or not authentic.
        """
        return self.table.trust.journal(run_id)

    def list_readable(self) -> tuple[Journal, ...]:
        """Return the journals of all runs, oldest first, except untrusted ones, which are noted in `trust.unread`."""
        found, log = [], self.table.trust.log()
        for run_id in Journal.runs(log):
            try:
                found.append(self.table.trust.journal(run_id, log))
            except VerificationError as error:
                self.table.trust.unread[run_id] = str(error)
        return tuple(found)

    def audit_writer(self) -> AuditWriter:
        """Return the writer of the table's audit."""
        self.table.trust.mac(renew=True)
        return AuditWriter(self.table.trust.log(), self.lock.token)

    def problems(self) -> Problems:
        """Return the table's problems."""
        return problems_of_target(self.table.target, self.table.store, self.table.trust.mac, self.table.files)

    def give_up_lost(self, reason: str) -> tuple[list[LostPin], list[str]]:
        """Record that the records are given up which pins name, or later records follow, and the state directory lacks.

        Runs of which a record is lost are not acted upon after that either.

        Returns:
            These pins, and what is wrong with each record that later ones follow.

        Raises:
            VerificationError: the audit is not authentic.
            RunConflictError: the lock is lost.
        """
        trust, target, log = self.table.trust, self.table.target, self.table.trust.log()
        pins, gaps = trust.find_lost_pins(), log.open_gaps
        if pins or gaps:
            self.lock.check()
            lost = {
                "given_up": [digest_of_pin(pin.text) for pin in pins],
                "pins": [[pin.name, pin.text] for pin in pins],
                "lost": list(gaps),
            }
            entry = make_entry(ACCEPT, self.table.policy.digest(), ACCEPT, table=target.name, reason=reason, **lost)
            self.audit_writer().append(entry)
            trust.forget_audit()
        return pins, [log.describe_gap(number) for number in gaps]

    @contextmanager
    def rewriter(self, journal: Journal) -> Iterator[UnitRewriter]:
        """Yield the rewriter of a past run's units; the caller continues the run's journal before it writes to it."""
        options = RunOptions().as_begun(journal.run.options)
        with RunContext(self.table, journal, self.lock) as context:
            yield rewriter_of(context, options, resumed=True)

    def disposal(self, run_id: str) -> Disposal:
        """Return the object used to delete folders of a run; none is deleted without it."""
        return Disposal(self.table.files, self.table.in_use, self.table.target.base, run_id, self.lock.check)


@contextmanager
def past_runs(
    spark: SparkSession,
    table: str,
    policy: Policy,
    what: str,
    progress: Progress | None = None,
    others: OtherTables | None = None,
) -> Iterator[PastRuns]:
    """Yield the runs of a table, under its lock.

    Args:
        spark: a classic session; it is configured with the policy.
        table: ``db.table``.
        policy: the policy under which the runs were made.
        what: the name of the operation, shown to other commands that find the table locked.
        progress: receives progress updates.
        others: the folders of other tables, which the tables of a command share; by default, listed when first needed.

    Raises:
        ConfigError: no run of the table is known.
        PlanError: the table has the UUID of another.
        RunConflictError: a run holds the table.
    """
    configure(spark, policy)
    found = Catalog(spark).table(table)
    if found.uuid is None:
        raise ConfigError(f"{found.full_name} has no identity, so no run of it is known; nothing is to {what}")
    refuse_shared_identity(spark, found, None if others is None else others.identities)
    target = catalog_target(spark, found, policy, None)
    opened = open_target(spark, target, policy, progress, others)
    if not any(opened.store.list(f"{kept}/{target.table_id}/") for kept in ("log", "problems")):
        raise ConfigError(f"{target.name}: no run is known in this state directory; nothing is to {what}")
    owner = acting_user()
    with acquire(opened.store, target.table_id, run_id=what, owner=owner) as lock:
        lock.keep_alive()
        opened.trust.mac(renew=True)
        runs = PastRuns(opened, lock)
        for journal in runs.list_readable():
            if not journal.archived and has_moved(journal, target.base):
                with runs.rewriter(journal) as rewriter:
                    settle_places(rewriter)
        yield runs
