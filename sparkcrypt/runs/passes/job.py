"""The context of one execution over one target, which all of its steps share and none changes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.state.lock import RunLock
from sparkcrypt.runs.old_folders.past_run_checks import OldFiles
from sparkcrypt.runs.passes.result import RunResult
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import Budget
from sparkcrypt.runs.table.footers import DriverFooters, FooterReader, TaskFooters, own_keys
from sparkcrypt.runs.table.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class TableJob:
    """One execution over one target; `open_job` creates it.

    Attributes:
        table: the table or folder.
        options: the requested options; an unfinished run continues with the options with which it began.
        budget: the budget, shared with other runs.
        reader: reads footers.
        old_files: the old files of past runs.
        started: when the job was opened, in seconds of the monotonic clock.
    """

    table: OpenTable
    options: RunOptions
    budget: Budget
    reader: FooterReader
    old_files: OldFiles
    started: float

    def context(self, journal: Journal, lock: RunLock) -> RunContext:
        """Return the context that the steps of one run share."""
        return RunContext(self.table, journal, lock)

    def run_record(self, run_id: str, options: RunOptions, lock: RunLock) -> RunRecord:
        """Return the first record of a new run."""
        return RunRecord(
            table_id=self.table.target.table_id,
            table=self.table.target.name,
            run_id=run_id,
            policy_digest=self.table.policy.digest(),
            plan=self.table.target.plan.to_dict(),
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
        report = result.report(self.table.target, engine, time.monotonic() - self.started)
        more = (*dict.fromkeys(warnings), *self.table.trust.unread_runs())
        return replace(report, warnings=(*report.warnings, *more))


def open_job(table: OpenTable, options: RunOptions, budget: Budget | None = None) -> TableJob:
    """Return the job of one execution; no file of the target is read, and nothing is written.

    Args:
        table: as in `TableJob`.
        options: as in `TableJob`.
        budget: unlimited by default.
    """
    started, policy = time.monotonic(), table.policy
    reader = TaskFooters(table.spark, policy.key_service, DriverFooters(table.files, own_keys(policy.key_service)))
    return TableJob(
        table=table,
        options=options.apply_policy(policy, of_table=table.target.table is not None),
        budget=budget or Budget(),
        reader=reader,
        old_files=OldFiles(table),
        started=started,
    )
