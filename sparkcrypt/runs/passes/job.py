"""The context of one execution over one target, which all of its steps share and none changes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.lock import RunLock
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.past_run import trust_of
from sparkcrypt.runs.old_folders.past_run_checks import OldFiles
from sparkcrypt.runs.passes.result import RunResult
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import Budget
from sparkcrypt.runs.table.footers import DriverFooters, FooterReader, TaskFooters, own_keys
from sparkcrypt.runs.table.in_use import OtherTables
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.target import Target
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableJob:
    """One execution over one target; `open_job` creates it.

    Attributes:
        spark: a classic session that is configured with the policy.
        target: a table or a folder.
        policy: what the tags mean.
        options: the requested options; an unfinished run continues with the options with which it began.
        progress: receives progress updates.
        budget: the budget, shared with other runs.
        others: the folders of other tables, shared with the other runs of a pass, which lists them once.
        files: the file system.
        reader: reads footers.
        store: the state directory.
        trust: opens the table's journals.
        old_files: the old files of past runs.
        started: when the job was opened, in seconds of the monotonic clock.
    """

    spark: SparkSession
    target: Target
    policy: Policy
    options: RunOptions
    progress: Progress
    budget: Budget
    others: OtherTables
    files: HadoopFiles
    reader: FooterReader
    store: StateStore
    trust: TableTrust
    old_files: OldFiles
    started: float

    def context(self, journal: Journal, lock: RunLock) -> RunContext:
        """Return the context that the steps of one run share."""
        return RunContext(
            self.spark,
            self.target,
            self.policy,
            self.store,
            journal,
            lock,
            self.progress,
            self.files,
            self.trust,
            self.others,
        )

    def run_record(self, run_id: str, options: RunOptions, lock: RunLock) -> RunRecord:
        """Return the first record of a new run."""
        return RunRecord(
            table_id=self.target.table_id,
            table=self.target.name,
            run_id=run_id,
            policy_digest=self.policy.digest(),
            plan=self.target.plan.to_dict(),
            options=options.to_dict(),
            fencing_token=lock.token,
        )

    def report(self, result: RunResult, engine: str, warnings: tuple[str, ...] = ()) -> Report:
        """Return the report of a run.

        Args:
            result: the result of the run.
            engine: the requested engine.
            warnings: warnings of the execution, in addition to those of the run.
        """
        report = result.report(self.target, engine, time.monotonic() - self.started)
        more = (*dict.fromkeys(warnings), *self.trust.unread_runs())
        return replace(report, warnings=(*report.warnings, *more))


def open_job(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    options: RunOptions,
    progress: Progress,
    budget: Budget | None = None,
    others: OtherTables | None = None,
) -> TableJob:
    """Return the job of one execution; no file of the target is read, and nothing is written.

    Args:
        spark: as in `TableJob`.
        target: as in `TableJob`.
        policy: as in `TableJob`.
        options: as in `TableJob`.
        progress: as in `TableJob`.
        budget: unlimited by default.
        others: by default, listed when first needed.

    Raises:
        ConfigError: the state directory cannot be opened.
    """
    started, files, others = time.monotonic(), HadoopFiles(spark), others or OtherTables(spark, policy.aliases)
    reader = TaskFooters(spark, policy.key_service, DriverFooters(files, own_keys(policy.key_service)))
    store = open_state_directory(spark, policy.run_state, outside=target.base)
    trust = trust_of(spark, target, policy, store, others)
    return TableJob(
        spark=spark,
        target=target,
        policy=policy,
        options=options.apply_policy(policy, of_table=target.table is not None),
        progress=progress,
        budget=budget or Budget(),
        others=others,
        files=files,
        reader=reader,
        store=store,
        trust=trust,
        old_files=OldFiles(spark, target, policy, trust, progress, others),
        started=started,
    )
