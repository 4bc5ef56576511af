"""One run over one target, under its lock: survey, then each unit that differs from the plan, then what is left."""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.backfill.assemble import runner_of
from sparkcrypt.backfill.compare import compare_run
from sparkcrypt.backfill.context import RunContext
from sparkcrypt.backfill.estimate import bytes_a_second
from sparkcrypt.backfill.footer_cache import FooterCache
from sparkcrypt.backfill.footers import DriverFooters, TaskFooters, own_keys
from sparkcrypt.backfill.in_use import OtherTables
from sparkcrypt.backfill.journal import Journal, RunRecord, check_same_policy, new_run_id
from sparkcrypt.backfill.lock import RunLock, acquire
from sparkcrypt.backfill.look_after import OldFiles
from sparkcrypt.backfill.mac import MasterKeys
from sparkcrypt.backfill.migrate import authenticating, may_continue
from sparkcrypt.backfill.move import MOVED_NOTE, refuse_other_file_systems
from sparkcrypt.backfill.options import RunOptions
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.priority import in_order
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.recover import Recovered, recover
from sparkcrypt.backfill.report import Report
from sparkcrypt.backfill.result import RunResult, last_audit, of_failed_run
from sparkcrypt.backfill.run_state import paused
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.scan import ScannedUnit, Scanner, refuse_unit
from sparkcrypt.backfill.schedule import Budget
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.survey import UnitSurvey, survey_unit
from sparkcrypt.backfill.swap import NewFolder, choose_swap
from sparkcrypt.backfill.targets import CatalogTarget, Target, locations_of
from sparkcrypt.backfill.trust import TableTrust
from sparkcrypt.backfill.unit_work import Progressed, UnitWork, refuse_changed
from sparkcrypt.errors import PlanError, RunConflictError, SparkcryptError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.tags.model import history_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableRun:
    """One execution over one target; its steps are in the order in which they happen.

    Args:
        spark: a classic session that is configured with the policy.
        target: a table or a directory.
        policy: what the tags mean.
        options: what was asked.
        progress: hears how far the run is.
        budget: what may be spent; shared with other runs.
        others: the folders of other tables; shared with other runs of a pass, which asks for them once.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: Target,
        policy: Policy,
        options: RunOptions,
        progress: Progress,
        budget: Budget | None = None,
        others: OtherTables | None = None,
    ) -> None:
        self._spark, self._target, self._policy = spark, target, policy
        self._options = options.under(policy, of_table=isinstance(target, CatalogTarget))
        self._progress, self._budget, self._started = progress, budget or Budget(), time.monotonic()
        self._files, self._others, self._drifted_again = HadoopFiles(spark), others or OtherTables(spark), False
        driver = DriverFooters(self._files, own_keys(policy.key_service))
        self._reader = TaskFooters(spark, policy.key_service, driver)
        self._store = open_states(spark, policy.run_state, outside=target.base)
        locations = partial(locations_of, spark, target)
        self._trust = TableTrust(self._store, target.table_id, policy, target.base, locations)
        self._warnings: list[str] = []
        self._journal: Journal | None = None
        self._surveys: list[UnitSurvey] = []
        self._old_files = OldFiles(spark, target, policy, self._trust, progress, self._others)

    def run(self) -> Report:
        """Do it all.

        Raises:
            RunConflictError: another run holds the target.
            SparkcryptError: what ended the run; every unit is as it was, or done.
        """
        if self._options.dry_run:
            self._refuse_swap("dry-run")
            rate = bytes_a_second(self._store, self._target.table_id)
            fast = None if rate is None else rate * self._options.parallelism
            result = RunResult("dry-run", "dry run", self._survey(), bytes_a_second=fast)
            return self._old_files.told_in(self._report(result))
        run_id = self._run_id()
        with acquire(self._store, self._target.table_id, run_id=run_id, owner=_owner()) as lock:
            lock.keep_alive()
            self._trust.look_again()
            return self._old_files.told_in(self._asked(run_id, lock))

    def failed(self) -> Report | None:
        """Return what was done when an error had ended the run; None where it had not begun."""
        return None if self._journal is None else self._report(of_failed_run(self._journal, self._surveys))

    def drifts(self) -> bool:
        """Tell whether a file differs from the plan; nothing is changed but the cache of footers."""
        return any(one.drift for one in self._survey())

    def _asked(self, run_id: str, lock: RunLock) -> Report:
        """Do what was asked; an unfinished run over some of it is finished first, as it was begun.

        One over other partitions than were asked for is put in order and goes on waiting: it may have had a budget,
        and was not asked for.  A unit that an unfinished run has swapped, and that differs again, is left to another
        run: of each run a unit has one place with old files.
        """
        asked = self._options
        if asked.where is not None and asked.resume == "auto" and self._is_over_others(run_id):
            waits = self._put_in_order(run_id, lock)
            self._options = asked
            own = self._locked(new_run_id(), lock)
            return replace(own, warnings=(*own.warnings, waits))
        report = self._locked(run_id, lock)
        elsewhere = self._options.where != asked.where and asked.resume == "auto"
        if report.outcome == "stopped at budget" or not (elsewhere or self._drifted_again):
            return report
        self._options = asked
        own = self._locked(new_run_id(), lock)
        why = "was over other partitions" if elsewhere else "had swapped some units before they drifted again"
        first = f"run {report.run_id}, which {why} and was unfinished, was finished first: {report.outcome}"
        return replace(own, warnings=(*own.warnings, first))

    def _is_over_others(self, run_id: str) -> bool:
        """Tell whether the unfinished run was begun over other partitions than are asked for now."""
        if not may_continue(self._trust, self._target.name, run_id):
            return False
        began = self._trust.journal(run_id).run.options
        return bool(began["where"] != self._options.where)

    def _put_in_order(self, run_id: str, lock: RunLock) -> str:
        """Bring the units of the unfinished run to a clean state and let it wait; return what a person should know.

        Raises:
            VerificationError: a unit of it is in a state that nobody can prove.
        """
        journal, before = self._continued(run_id, lock)
        before.refuse_problems()
        if journal is not None and not paused(journal):
            journal.append("run_paused", units_left=None)
        return (
            f"run {run_id} over {self._chosen(self._options.where)} is unfinished, and was left so, since "
            "--where asks for others; the command that began it goes on with it"
        )

    @staticmethod
    def _chosen(where: str | None) -> str:
        return "all partitions" if where is None else f"--where {where!r}"

    def _run_id(self) -> str:
        """Return the unfinished run's id when there is one to continue, else a new one."""
        unfinished = self._trust.unfinished()
        if self._options.resume not in ("auto", "never") and self._options.resume != unfinished:
            raise RunConflictError(
                f"{self._target.name}: run {self._options.resume} cannot be resumed; unfinished: {unfinished or 'none'}"
            )
        return unfinished or new_run_id()

    def _locked(self, run_id: str, lock: RunLock) -> Report:
        journal, before = self._continued(run_id, lock)
        run_id = new_run_id() if run_id in self._trust.unread else run_id
        if journal is not None and self._options.resume == "never":
            journal.append("run_finished", outcome="abandoned")
            self._warnings.extend(one.message for one in before.problems)
            journal, before, run_id = None, Recovered(), new_run_id()
        self._old_files.look_after(lock, but=None if journal is None else run_id)
        if journal is None:
            self._refuse_swap(run_id)
        surveys = self._surveys = self._survey()
        drifted = in_order(
            (one for one in surveys if one.drift), self._options.priority, self._target.plan, self._policy
        )
        if self._options.move_old:
            refuse_other_file_systems(tuple(one.unit for one in drifted), self._target.base)
        if journal is None and not drifted:
            self._settle(tagged_only=True)
            return self._report(RunResult(run_id, "nothing to do", surveys))
        resumed = journal is not None
        journal = journal or Journal.start(
            self._store, self._record(run_id, lock), authenticating(self._trust, self._target.name)
        )
        self._journal = journal
        with self._context(journal, lock) as context:
            return self._worked(runner_of(context, self._options, resumed=resumed), surveys, drifted, before)

    def _worked(
        self, runner: Runner, surveys: list[UnitSurvey], drifted: list[UnitSurvey], before: Recovered
    ) -> Report:
        ours = {one.name for one in before.outcomes}
        swapped = ours | {one.name for one in before.problems}
        self._drifted_again = not isinstance(runner.swap, NewFolder) and any(one.name in ours for one in drifted)
        drifted = [one for one in drifted if one.name not in swapped]  # a copy leaves its source as it is, too
        amounts = [one.amount for one in drifted]
        files, total = sum(one.files for one in amounts), sum(one.total_bytes for one in amounts)
        self._progress.start(self._target.name, len(drifted), files, total)
        try:
            drifted, back = self._old_files.without_back(drifted, keep_going=self._options.keep_going)
            progressed = UnitWork(runner, self._reader, self._options, self._budget).process(drifted)
        finally:
            self._progress.finish()
        progressed.outcomes[:0] = before.outcomes
        progressed.failed.extend([*back, *compare_run(runner).failed])
        progressed.unsettled.extend(before.problems)
        return self._ended(runner, surveys, progressed, before.outcomes)

    def _ended(
        self, runner: Runner, surveys: list[UnitSurvey], progressed: Progressed, earlier: list[UnitOutcome]
    ) -> Report:
        outcome, journal = progressed.outcome, runner.run.journal
        if outcome in ("done", "nothing to do") and not self._drifted_again:
            self._settle()
        if outcome == "stopped at budget":
            journal.append("run_paused", units_left=len(progressed.left))
        elif not progressed.unsettled:  # else the next run tells of it again, until it is settled
            journal.append("run_finished", outcome=outcome)
        result = RunResult(
            runner.run.run_id,
            outcome,
            surveys,
            outcomes=progressed.outcomes,
            earlier=earlier,
            failed=[*progressed.failed, *progressed.unsettled],
            left=progressed.left,
            swap=runner.swap.name,
            notes=self._notes(runner) if progressed.outcomes else (),
            audit=last_audit(journal),
        )
        return self._report(result)

    def _notes(self, runner: Runner) -> tuple[str, ...]:
        masters = MasterKeys.of(self._policy)
        notes = (MOVED_NOTE if runner.run.moves_old else runner.swap.warning, masters.weakness(masters.current))
        return tuple(note for note in notes if note is not None)

    def _continued(self, run_id: str, lock: RunLock) -> tuple[Journal | None, Recovered]:
        """Take over an interrupted run and bring its units to a clean state."""
        if not may_continue(self._trust, self._target.name, run_id):
            return None, Recovered()
        journal = self._trust.journal(run_id)
        if self._options.resume != "never":
            check_same_policy(journal, self._policy.digest())
        journal.resume(lock.token)
        self._journal = journal
        self._options = self._options.as_begun(journal.run.options)
        with self._context(journal, lock) as context:
            recovered = recover(runner_of(context, self._options, resumed=True))
        if not self._options.keep_going and self._options.resume != "never":
            recovered.refuse_problems()
        return journal, recovered

    def _context(self, journal: Journal, lock: RunLock) -> RunContext:
        return RunContext(
            self._spark,
            self._target,
            self._policy,
            self._store,
            journal,
            lock,
            self._progress,
            self._files,
            self._trust,
            self._others,
        )

    def _refuse_swap(self, run_id: str) -> None:
        """Refuse, before anything is read or written, what no swap could bring to an end."""
        output, exclusive = self._options.output, self._options.exclusive
        choose_swap(self._spark, self._target, run_id, output=output, exclusive=exclusive)

    def _record(self, run_id: str, lock: RunLock) -> RunRecord:
        return RunRecord(
            table_id=self._target.table_id,
            table=self._target.name,
            run_id=run_id,
            policy_digest=self._policy.digest(),
            plan=self._target.plan.to_dict(),
            options=self._options.to_dict(),
            fencing_token=lock.token,
        )

    def _survey(self) -> list[UnitSurvey]:
        """Return every unit in short; what a run that does not keep going would refuse is refused now."""
        cache = FooterCache(self._store, self._target.table_id, keeps=not self._options.dry_run)
        surveys, units = [], self._target.units(self._options.where)
        if not units and self._options.where is not None:
            self._refuse_nothing(self._options.where)
        for scanned in Scanner(self._target, self._files, self._reader, cache).scan(units):
            if scanned.drift and not (self._options.keep_going or self._options.dry_run):
                self._refuse(scanned)
            surveys.append(survey_unit(scanned, self._target.plan, rewrap=self._options.rewrap))
        return surveys

    def _refuse_nothing(self, where: str) -> None:
        """Tell that no partition was chosen: a misspelt value looks like a table in order.

        Raises:
            PlanError: under ``strict``.
        """
        text = f"{self._target.name}: --where {where!r} chooses no partition; SHOW PARTITIONS lists what is there"
        if self._options.strict:
            raise PlanError(text)
        self._warnings.append(text)

    def _refuse(self, scanned: ScannedUnit) -> None:
        try:
            refuse_unit(scanned, self._target, self._policy, adopt=self._options.adopt)
        except SparkcryptError as error:
            refuse_changed(self._files, scanned.unit, error)
            raise

    def _settle(self, *, tagged_only: bool = False) -> None:
        """Once no file of the whole table differs from the plan, readers need no history any more.

        Args:
            tagged_only: leave that of columns without a tag, which says that a tag was taken off, until a run has
                recorded the plan without it.
        """
        target = self._target
        if isinstance(target, CatalogTarget) and self._options.where is None:
            paths = {column.leaf.logical for column in target.plan.columns if column.tags or not tagged_only}
            Catalog(self._spark).unset_options(target.table, tuple(history_property(path) for path in sorted(paths)))

    def _report(self, result: RunResult) -> Report:
        report = result.report(self._target, self._options.engine, time.monotonic() - self._started)
        warnings = (*report.warnings, *dict.fromkeys(self._warnings), *self._trust.unread_runs())
        return replace(report, warnings=warnings)


def _owner() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
