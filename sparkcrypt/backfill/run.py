"""One run over one target, under its lock: survey, then each unit that differs from the plan, then what is left."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.backfill.assemble import runner_of
from sparkcrypt.backfill.carry import carry_over_all
from sparkcrypt.backfill.context import RunContext
from sparkcrypt.backfill.drift import Drift, drift_in_short
from sparkcrypt.backfill.estimate import bytes_a_second
from sparkcrypt.backfill.footer_cache import FooterCache
from sparkcrypt.backfill.footers import DriverFooters, TaskFooters, own_keys
from sparkcrypt.backfill.journal import Journal, RunRecord, check_same_policy, new_run_id
from sparkcrypt.backfill.lock import RunLock, acquire
from sparkcrypt.backfill.mac import MasterKeys
from sparkcrypt.backfill.migrate import authenticating
from sparkcrypt.backfill.move import refuse_other_file_systems
from sparkcrypt.backfill.options import RunOptions
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.priority import in_order
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.recover import recover
from sparkcrypt.backfill.report import Outcome, Report
from sparkcrypt.backfill.result import RunResult, last_audit
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.scan import Scanner, refuse_unit, suspicious
from sparkcrypt.backfill.schedule import Budget, Done, FailedUnit, work_through
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.survey import UnitSurvey, survey_unit
from sparkcrypt.backfill.swap import NewFolder, choose_swap
from sparkcrypt.backfill.targets import CatalogTarget, Target, locations_of
from sparkcrypt.backfill.trust import TableTrust
from sparkcrypt.errors import RunConflictError, SparkcryptError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.spark.jvm import JVM_ERRORS, cause_of
from sparkcrypt.tags.model import history_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""How long a run waits before each further try of units to which somebody wrote."""
_MOVED = (
    "old files were moved out of the table's folder: readers that had listed them fail with 'file not found' and must "
    "run again; `sparkcrypt backfill expire` deletes them"
)


@dataclass(slots=True)
class _Progressed:
    """What a run has done so far, and what it could not."""

    outcomes: list[UnitOutcome] = field(default_factory=list)
    failed: list[FailedUnit] = field(default_factory=list)
    left: list[UnitSurvey] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """How the run ends."""
        if self.failed:
            return "incomplete"
        if self.left:
            return "stopped at budget"
        return "done" if self.outcomes else "nothing to do"


class TableRun:
    """One execution over one target; its steps are in the order in which they happen.

    Args:
        spark: a classic session that is configured with the policy.
        target: a table or a directory.
        policy: what the tags mean.
        options: what was asked.
        progress: hears how far the run is.
        budget: what may be spent; shared with other runs.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: Target,
        policy: Policy,
        options: RunOptions,
        progress: Progress,
        budget: Budget | None = None,
    ) -> None:
        self._spark, self._target, self._policy, self._options = spark, target, policy, options
        self._progress, self._budget, self._started = progress, budget or Budget(), time.monotonic()
        self._files = HadoopFiles(spark)
        driver = DriverFooters(self._files, own_keys(policy.key_service))
        self._reader = TaskFooters(spark, policy.key_service, driver)
        self._store = open_states(spark, policy.run_state, outside=target.base)
        self._drifted_again = False
        locations = partial(locations_of, spark, target)
        self._trust = TableTrust(self._store, target.table_id, policy, target.base, locations)

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
            return self._report(RunResult("dry-run", "dry run", self._survey(), bytes_a_second=fast))
        run_id = self._run_id()
        with acquire(self._store, self._target.table_id, run_id=run_id, owner=_owner()) as lock:
            lock.keep_alive()
            self._trust.look_again()
            return self._asked(run_id, lock)

    def drifts(self) -> bool:
        """Tell whether a file differs from the plan; nothing is changed but the cache of footers."""
        return any(one.drift for one in self._survey())

    def _asked(self, run_id: str, lock: RunLock) -> Report:
        """Do what was asked; an unfinished run over other partitions is finished first, as it was begun.

        A unit that an unfinished run has swapped, and that differs again, is left to another run: of each run a unit
        has one place with old files.
        """
        asked = self._options
        report = self._locked(run_id, lock)
        elsewhere = self._options.where != asked.where and asked.resume == "auto"
        if report.outcome == "stopped at budget" or not (elsewhere or self._drifted_again):
            return report
        self._options = asked
        own = self._locked(new_run_id(), lock)
        why = "was over other partitions" if elsewhere else "had swapped some units before they drifted again"
        first = f"run {report.run_id}, which {why} and was unfinished, was finished first: {report.outcome}"
        return replace(own, warnings=(*own.warnings, first))

    def _run_id(self) -> str:
        """Return the unfinished run's id when there is one to continue, else a new one."""
        unfinished = self._trust.unfinished()
        if self._options.resume not in ("auto", "never") and self._options.resume != unfinished:
            raise RunConflictError(
                f"{self._target.name}: run {self._options.resume} cannot be resumed; unfinished: {unfinished or 'none'}"
            )
        return unfinished or new_run_id()

    def _locked(self, run_id: str, lock: RunLock) -> Report:
        journal, done = self._continued(run_id, lock)
        if journal is not None and self._options.resume == "never":
            journal.append("run_finished", outcome="abandoned")
            journal, done, run_id = None, [], new_run_id()
        if journal is None:
            self._refuse_swap(run_id)
        surveys = self._survey()
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
        with self._context(journal, lock) as context:
            return self._worked(runner_of(context, self._options, resumed=resumed), surveys, drifted, done)

    def _worked(
        self, runner: Runner, surveys: list[UnitSurvey], drifted: list[UnitSurvey], done: list[UnitOutcome]
    ) -> Report:
        swapped = {outcome.name for outcome in done}
        self._drifted_again = not isinstance(runner.swap, NewFolder) and any(one.name in swapped for one in drifted)
        drifted = [one for one in drifted if one.name not in swapped]  # a copy leaves its source as it is, too
        amounts = [one.amount for one in drifted]
        files, total = sum(one.files for one in amounts), sum(one.total_bytes for one in amounts)
        self._progress.start(self._target.name, len(drifted), files, total)
        try:
            progressed = self._process(runner, drifted)
        finally:
            self._progress.finish()
        progressed.outcomes[:0] = done
        progressed.failed.extend(carry_over_all(runner))
        return self._ended(runner, surveys, progressed)

    def _ended(self, runner: Runner, surveys: list[UnitSurvey], progressed: _Progressed) -> Report:
        outcome, journal = progressed.outcome, runner.run.journal
        if outcome in ("done", "nothing to do") and not self._drifted_again:
            self._settle()
        if outcome == "stopped at budget":
            journal.append("run_paused", units_left=len(progressed.left))
        else:
            journal.append("run_finished", outcome=outcome)
        result = RunResult(
            runner.run.run_id,
            outcome,
            surveys,
            outcomes=progressed.outcomes,
            failed=progressed.failed,
            left=progressed.left,
            swap=runner.swap.name,
            notes=self._notes(runner) if progressed.outcomes else (),
            audit=last_audit(journal),
        )
        return self._report(result)

    def _notes(self, runner: Runner) -> tuple[str, ...]:
        masters = MasterKeys.of(self._policy)
        notes = (_MOVED if runner.run.moves_old else runner.swap.warning, masters.weakness(masters.current))
        return tuple(note for note in notes if note is not None)

    def _process(self, runner: Runner, drifted: Sequence[UnitSurvey]) -> _Progressed:
        """Work through the units; those to which somebody wrote meanwhile are tried again."""
        progressed, todo = _Progressed(), list(drifted)
        for pause in (*PAUSES_SECONDS, None):
            done = self._once(runner, todo)
            progressed.outcomes.extend(done.outcomes)
            progressed.failed.extend(done.failed)
            progressed.left.extend(done.left)
            todo = [survey for survey, _ in done.busy]
            if not todo:
                break
            if pause is None:
                progressed.failed.extend(
                    FailedUnit(survey.name, type(error).__name__, str(error)) for survey, error in done.busy
                )
                break
            time.sleep(pause)
        return progressed

    def _once(self, runner: Runner, units: Sequence[UnitSurvey]) -> Done:
        def process(survey: UnitSurvey) -> UnitOutcome | None:
            return self._one(runner, survey)

        keep_going, parallelism = self._options.keep_going, self._options.parallelism
        return work_through(units, process, parallelism=parallelism, budget=self._budget, keep_going=keep_going)

    def _one(self, runner: Runner, survey: UnitSurvey) -> UnitOutcome | None:
        """Do one unit; an error of Spark or Hadoop is this unit's.

        Raises:
            SparkcryptError: it could not be done.
        """
        try:
            return self._read_and_done(runner, survey)
        except JVM_ERRORS as error:
            raise SparkcryptError(f"{survey.name}: {': '.join(cause_of(error))}") from error

    def _read_and_done(self, runner: Runner, survey: UnitSurvey) -> UnitOutcome | None:
        """List and read a unit anew, since the survey may be old and from a cache; then take it through its steps."""
        (scanned,) = Scanner(self._target, self._files, self._reader).scan([survey.unit])
        if not scanned.drift:
            self._progress.advance(survey.amount.files, survey.total_bytes, 1)
            return None
        adopt = self._options.adopt
        try:
            refuse_unit(scanned, self._target, self._policy, adopt=adopt)
            adopted = tuple(suspicious(scanned, self._target.plan, self._policy)) if adopt else ()
        except SparkcryptError as error:
            runner.run.journal.append("unit_failed", unit=survey.name, error=f"{type(error).__name__}: {error}")
            raise
        return runner.process(scanned, notes=_adopted(adopted))

    def _continued(self, run_id: str, lock: RunLock) -> tuple[Journal | None, list[UnitOutcome]]:
        """Take over an interrupted run and bring its units to a clean state."""
        if self._trust.unfinished() != run_id:
            return None, []
        authenticating(self._trust, self._target.name)
        journal = self._trust.journal(run_id)
        if self._options.resume != "never":
            check_same_policy(journal, self._policy.digest())
        journal.resume(lock.token)
        self._options = self._options.as_begun(journal.run.options)
        with self._context(journal, lock) as context:
            return journal, recover(runner_of(context, self._options, resumed=True))

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
        surveys = []
        for scanned in Scanner(self._target, self._files, self._reader, cache).scan(
            self._target.units(self._options.where)
        ):
            if scanned.drift and not (self._options.keep_going or self._options.dry_run):
                refuse_unit(scanned, self._target, self._policy, adopt=self._options.adopt)
            surveys.append(survey_unit(scanned, self._target.plan, rewrap=self._options.rewrap))
        return surveys

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
        return replace(report, warnings=(*report.warnings, *self._trust.unread_runs()))


def _adopted(drift: Sequence[Drift]) -> tuple[str, ...]:
    """Return what the audit says of files that readers would not have believed, and that --adopt made believable."""
    return tuple(f"adopted: {line}" for line in drift_in_short(drift))


def _owner() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
