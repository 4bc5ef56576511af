"""Runs over one target, under its lock: survey the units, rewrite those that differ from the plan, and report.

A new run is begun, or an unfinished one continued, whose units are first brought to a clean state.
`sparkcrypt.encrypt_table`, which `sparkcrypt encrypt` calls too, is one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, KeyNotFoundError, PlanError, RunConflictError, VerificationError
from sparkcrypt.files.format import FORMATS
from sparkcrypt.ledger.audit.pins import describe_lost
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.entries import RunFinished, RunPaused
from sparkcrypt.ledger.journal.journal import Journal, RunRecord, check_same_policy, is_paused, new_run_id
from sparkcrypt.ledger.state.lock import RunLock, acquire, acting_user
from sparkcrypt.ledger.state.mac import MasterKeys, has_mac_key
from sparkcrypt.log_lines import log_about
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.runs.old_folders.former_homes import describe_move
from sparkcrypt.runs.old_folders.late_commits import compare_run, problems_of
from sparkcrypt.runs.old_folders.past_run_checks import OldFiles
from sparkcrypt.runs.old_folders.replacements import open_cut_off
from sparkcrypt.runs.passes import units
from sparkcrypt.runs.passes.last_pass import PassRecord, covers_table
from sparkcrypt.runs.passes.result import RunResult, bytes_a_second, find_last_audit, result_of_failed_run
from sparkcrypt.runs.passes.run_events import events_of_run
from sparkcrypt.runs.passes.units import Surveyed, UnitWork, survey_units
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.moved_files import MOVED_NOTE, refuse_other_file_systems
from sparkcrypt.runs.rewrite.options import Engine, RunKeywords, RunOptions
from sparkcrypt.runs.rewrite.recover import Recovered, recover
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import Budget, FailedUnit, Progressed, order_units, work_through
from sparkcrypt.runs.rewrite.swap import choose_swap
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter, rewriter_of
from sparkcrypt.runs.table.footers import DriverFooters, FooterReader, TaskFooters, own_keys
from sparkcrypt.runs.table.open_table import OpenTable, open_target
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.table_index import carry_index, explain_stale
from sparkcrypt.runs.table.target import Target, catalog_target, path_target, places_of_units
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.runs.table.untouchable import error_of_folder
from sparkcrypt.schema import Schema
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import shared_text
from sparkcrypt.tags.field_metadata import ColumnLineage
from sparkcrypt.tags.model import history_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack


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


_BEFORE_STAGING = ("run_started", "run_resumed", "unit_listed", "unit_failed", "run_paused")
"""Kinds of records of a run that has staged no file."""


@dataclass(slots=True)
class CurrentRun:
    """The run that an execution works on, updated as it proceeds: for its report, also if an error ends it.

    Attributes:
        run_id: its id.
        options: the options with which it begins, or with which it began.
        continued: the journal of the unfinished run that it continues; None if it is a new one.
        journal: its journal, which a new run gets only if a unit differs from the plan; until then, that of a run that
            was closed, or left, before it.
        recovered: what became of the units of an unfinished run.
        surveys: the units of the target.
        drifted_again: whether units that it had swapped before differ again, and were skipped.
        warnings: warnings for its report.
        last_warnings: those that its report lists last.
        noted: the lineage in the files of the target.
    """

    run_id: str
    options: RunOptions
    continued: Journal | None = None
    journal: Journal | None = None
    recovered: Recovered = field(default_factory=Recovered)
    surveys: Sequence[UnitSurvey] = ()
    drifted_again: bool = False
    warnings: tuple[str, ...] = ()
    last_warnings: tuple[str, ...] = ()
    noted: set[ColumnLineage] = field(default_factory=set)

    def begin_anew(self, options: RunOptions, *last_warnings: str) -> None:
        """Go on with a new run, with the requested options."""
        self.run_id, self.options, self.continued, self.recovered = new_run_id(), options, None, Recovered()
        self.last_warnings = last_warnings


def choose_run_id(job: TableJob) -> str:
    """Return the id of the run to continue if one is unfinished, else a new id.

    Raises:
        RunConflictError: the options name a run to resume, and it is not the unfinished one.
    """
    unfinished, resume = job.table.trust.find_unfinished(), job.options.resume
    if resume not in ("auto", "never") and resume != unfinished:
        raise RunConflictError(
            f"{job.table.target.name}: run {resume} cannot be resumed; unfinished: {unfinished or 'none'}"
        )
    return unfinished or new_run_id()


def refuse_records_of_another(job: TableJob) -> None:
    """Refuse a table under whose UUID another table, which still has it, had its last run.

    A copy of the owner's mark would pass for the owner otherwise: the records, audit and keys under it are the other's.

    Raises:
        PlanError: the message names both tables.
    """
    table = job.table.target.table
    if table is None:
        return
    is_known = has_mac_key(job.table.store, job.table.target.table_id)
    log = job.table.trust.log() if is_known else job.table.trust.shown_log()
    run_id = next(iter(reversed(Journal.runs(log))), None)
    try:
        name = None if run_id is None else Journal.open(log, run_id).run.table
    except VerificationError:
        return  # reported where the run's records are read
    if name is None or normalized_table(name) == normalized_table(job.table.target.name):
        return
    other = Catalog(job.table.spark).find(name)
    if other is not None and other.uuid == table.uuid:
        raise PlanError(shared_text(table, [other]))


def begin_run(job: TableJob, run: CurrentRun, lock: RunLock) -> None:
    """Choose the run to work on, after bringing the units of an unfinished run to a clean state.

    Args:
        job: the job.
        run: has the id from `choose_run_id`; receives the journal and the options of a continued run.
        lock: the target's lock.

    Raises:
        RunConflictError: the unfinished run began under another policy or applies another plan, or another driver
            continues it.
        VerificationError: a unit of the unfinished run has new files in use that cannot be proven, or a swap of it was
            cut off, which `--resume never` does not settle.
    """
    options, run_id = job.options, run.run_id
    if not _may_continue(job.table.trust, run_id):
        if run_id in job.table.trust.unread:
            run.begin_anew(options)
        return
    journal = job.table.trust.journal(run_id)
    if options.plan is not None and options.resume != "never":
        options.plan.refuse_other_run(journal.run)
    elsewhere = options.where is not None and options.resume == "auto" and journal.run.where != options.where
    lacked = _find_lacking_key(job, journal)
    recovered = _take_over(job, run, journal, lock, abandons=options.resume == "never" or lacked is not None)
    if elsewhere and lacked is None:
        run.begin_anew(options, _let_wait(journal, recovered))
        return
    if lacked is not None and (recovered.names or recovered.cut_off):
        check_same_policy(journal, job.table.policy.digest())
    if options.resume == "never" or lacked is not None:
        journal.write(RunFinished("abandoned"))
        run.warnings += (
            *(problem.message for problem in recovered.problems),
            *([] if lacked is None else [f"run {run_id} was closed, and another begun: {lacked}"]),
        )
        run.begin_anew(options)
    else:
        run.continued, run.recovered = journal, recovered


def _may_continue(trust: TableTrust, run_id: str) -> bool:
    """Return whether a run is the unfinished one, also by the newest MAC key, which may be made for it."""
    if trust.find_unfinished() != run_id:
        return False
    trust.mac(renew=True)
    return trust.find_unfinished() == run_id


def _find_lacking_key(job: TableJob, journal: Journal) -> str | None:
    """Return why a run under another policy could never have been finished: a key that its policy names was not there.

    Returns:
        None if it is to be continued, or has staged a file.
    """
    if job.options.resume != "auto" or journal.run.policy_digest == job.table.policy.digest():
        return None
    if any(record.kind not in _BEFORE_STAGING for record in journal.records):
        return None
    errors = (str(record.fields["error"]) for record in journal.records if record.kind == "unit_failed")
    error = next((error for error in errors if error.startswith(f"{KeyNotFoundError.__name__}: ")), None)
    return None if error is None else f"it had encrypted no file, since under its policy {error}"


def _take_over(job: TableJob, run: CurrentRun, journal: Journal, lock: RunLock, *, abandons: bool) -> Recovered:
    """Continue the journal of an unfinished run, and bring its units to a clean state."""
    if not abandons:
        check_same_policy(journal, job.table.policy.digest())
    journal.resume(lock.token)
    run.journal, run.options = journal, job.options.as_begun(journal.run.options)
    with RunContext(job.table, journal, lock) as context:
        rewriter = rewriter_of(context, run.options, resumed=True)
        recovered = open_cut_off(rewriter, recover(rewriter))
    if not (job.options.keep_going or abandons) or (abandons and recovered.cut_off):
        recovered.refuse_problems()
    return recovered


def _let_wait(journal: Journal, recovered: Recovered) -> str:
    """Pause an unfinished run over other partitions than those asked for; return a note for the report.

    Raises:
        VerificationError: a unit of it has new files in use that cannot be proven.
    """
    recovered.refuse_problems()
    if not is_paused(journal):
        journal.write(RunPaused(None))
    where = journal.run.where
    chosen = "all partitions" if where is None else f"--where {where!r}"
    return (
        f"run {journal.run.run_id} over {chosen} is unfinished, and was left so, since --where asks for others; the "
        "command that began it goes on with it"
    )


def run_table(job: TableJob, on_survey: Callable[[Sequence[UnitSurvey]], None] = lambda _: None) -> Report:
    """Bring a target to its plan; an unfinished run is finished first, with the options with which it began.

    An unfinished run over other partitions than those asked for is brought to a clean state and stays paused: the
    caller did not ask for it, and it may have had a budget.  A unit that an unfinished run has swapped and that differs
    again is left to a new run, since one run keeps only one old folder for each unit.

    Args:
        job: the job.
        on_survey: called with the units as the run found them, before it changed any.

    Raises:
        RunConflictError: another run holds the target.
        SparkcryptError: an error ended the run; each unit is unchanged or swapped.
    """
    if job.options.dry_run:
        choose_swap(job.table, "dry-run", job.options)  # what it refuses, before any unit is surveyed
        job.old_files.look_without_lock()
        report, surveyed = report_dry_run(job)
        if job.options.plan is not None:
            job.options.plan.refuse_other_units(surveyed.units)
        on_survey(surveyed.units)
        return job.old_files.report_open_problems(report)
    run = CurrentRun(choose_run_id(job), job.options)
    try:
        with acquire(job.table.store, job.table.target.table_id, run_id=run.run_id, owner=acting_user()) as lock:
            lock.keep_alive()
            job.table.trust.look_again()
            refuse_records_of_another(job)
            with log_about(run=run.run_id, table=job.table.target.name):
                begin_run(job, run, lock)
            with events_of_run(job.table, run.options, run.run_id) as events:
                with log_about(run=run.run_id, table=job.table.target.name):
                    report = execute_run(job, run, lock)
                first = _explain_rerun(job, run, report)
                if first is not None:
                    run.begin_anew(job.options, first)
                    with log_about(run=run.run_id, table=job.table.target.name):
                        report = execute_run(job, run, lock)
                events.tell_run(report, job.table.target.plan, run.noted)
            on_survey(run.surveys)
            return job.old_files.report_open_problems(report)
    except BaseException:
        if run.journal is not None:
            failed = result_of_failed_run(run.journal, run.surveys)
            job.options.on_failure(job.report(failed, run.options.engine, run.warnings))
        raise


def execute_run(job: TableJob, run: CurrentRun, lock: RunLock) -> Report:
    """Take every unit that differs from the plan through its steps, and finish or pause the run.

    Raises:
        SparkcryptError: an error ended the run.
    """
    options = run.options
    job.old_files.look_after(lock, but=None if run.continued is None else run.run_id)
    if run.continued is None:
        choose_swap(job.table, run.run_id, options)  # what it refuses, before any unit is surveyed

    def look(scanned: ScannedUnit) -> None:
        job.old_files.compare(scanned)
        run.noted.update(note for file in scanned.files.values() for note in file.facts.lineage)

    surveyed = survey_units(job.table, job.reader, options, look)
    if options.plan is not None:
        options.plan.refuse_other_units(surveyed.units, run.recovered.names)
    job.old_files.settle_listed(whole=options.where is None, adopt=options.adopt)
    run.surveys, run.warnings = surveyed.units, (*run.warnings, *surveyed.warnings, *_note_pins(job, surveyed.units))
    drifted = order_units(surveyed.drifted, job.table.target.plan, job.table.policy)
    if options.move_old:
        refuse_other_file_systems(tuple(survey.unit for survey in drifted), job.table.target.base)
    if run.continued is None and not drifted:
        _settle_history(job, options, surveyed.units, tagged_only=True)
        return _report_run(job, run, RunResult(run.run_id, "nothing to do", surveyed.units))
    journal = run.journal = run.continued or _start_journal(job, run.run_id, options, lock)
    with RunContext(job.table, journal, lock) as context:
        rewriter = rewriter_of(context, options, resumed=run.continued is not None)
        swapped = run.recovered.names  # the survey finds drift in a copied unit too, since its source is unchanged
        todo = [survey for survey in drifted if survey.name not in swapped]
        ours = {outcome.name for outcome in run.recovered.outcomes}
        run.drifted_again = not rewriter.swap.copies and any(survey.name in ours for survey in drifted)
        with _show_progress(job, todo):
            todo, undecided = job.old_files.leave_out_undecided(todo, keep_going=options.keep_going)
            work = UnitWork(rewriter, job.reader, options, job.old_files.refuse_replayed)
            progressed = work_through(
                todo,
                work.process_all,
                work.locate,
                options,
                pauses=units.PAUSES_SECONDS,
                budget=job.budget,
            )
        progressed.outcomes[:0] = run.recovered.outcomes
        progressed.failed.extend([*undecided, *compare_run(rewriter, problems_of(rewriter)).failed])
        progressed.unsettled.extend(run.recovered.problems)
        if progressed.outcome in ("done", "nothing to do") and not run.drifted_again:
            _settle_history(job, options, surveyed.units)
        index = None if rewriter.swap.copies else _carry_index(job, journal)
        run.warnings = (*run.warnings, *explain_stale(job.table.target.name, index))
        return _report_run(job, run, replace(_end_run(job, run, rewriter, progressed), index=index))


def _start_journal(job: TableJob, run_id: str, options: RunOptions, lock: RunLock) -> Journal:
    job.table.trust.mac(renew=True)
    return Journal.start(job.table.trust.log(), job.run_record(run_id, options, lock))


def _note_pins(job: TableJob, surveys: Sequence[UnitSurvey]) -> tuple[str, ...]:
    """Return notes on swapped units without a pin, and on those whose pins show that the state directory is older.

    Units that this run swaps again are left out, which sets their pins.
    """
    table, trust = job.table.target.table, job.table.trust
    if table is None:
        return ()
    places = places_of_units(table, (survey.unit for survey in surveys if not survey.drift))
    try:
        lost = trust.find_lost_pins(places)
    except VerificationError:  # the audit is not authentic, as the comparison with its list has said
        lost = []
    older = [f"{describe_lost(lost)}; until then nobody can tell what newer records say of old files"] if lost else []
    return (*trust.unpinned_units(places), *older)


def _explain_rerun(job: TableJob, run: CurrentRun, report: Report) -> str | None:
    """Return a note on the unfinished run that was finished first; None if no further run is needed."""
    elsewhere = run.options.where != job.options.where and job.options.resume == "auto"
    requested, done = ((options.rotate_key, options.rotate_from) for options in (job.options, run.options))
    otherwise = requested != done
    if report.outcome == "stopped at budget" or not (elsewhere or otherwise or run.drifted_again):
        return None
    why = "was over other partitions" if elsewhere else "had swapped some units before they drifted again"
    if otherwise:
        rotated = run.options.rotate_key
        why = "brought files to their plan" if rotated is None else f"rotated {rotated!r}"
    return f"run {report.run_id}, which {why} and was unfinished, was finished first: {report.outcome}"


@contextmanager
def _show_progress(job: TableJob, todo: list[UnitSurvey]) -> Iterator[None]:
    amounts = [survey.amount for survey in todo]
    files, total = sum(amount.files for amount in amounts), sum(amount.total_bytes for amount in amounts)
    job.table.progress.start(job.table.target.name, len(todo), files, total)
    try:
        yield
    finally:
        job.table.progress.finish()


def _end_run(job: TableJob, run: CurrentRun, rewriter: UnitRewriter, progressed: Progressed) -> RunResult:
    """Record that a run has finished or paused; a run with an unsettled unit stays unfinished."""
    outcome, journal = progressed.outcome, rewriter.run.journal
    if outcome == "stopped at budget":
        journal.write(RunPaused(len(progressed.left)))
    elif not progressed.unsettled:
        journal.write(RunFinished(outcome))
    return RunResult(
        rewriter.run.run_id,
        outcome,
        run.surveys,
        outcomes=progressed.outcomes,
        earlier=run.recovered.outcomes,
        failed=[*progressed.failed, *progressed.unsettled],
        left=progressed.left,
        swap=rewriter.swap.name,
        notes=_list_notes(job, rewriter) if progressed.outcomes else (),
        audit=find_last_audit(journal),
    )


def _carry_index(job: TableJob, journal: Journal) -> dict[str, Any] | None:
    """Update the table's store for data skipping for all files that this or an earlier execution of the run swapped."""
    statuses = journal.statuses().values()
    swapped = [status for status in statuses if status.swapped]
    return carry_index(job.table.target, job.table.policy, job.table.store, job.table.files, swapped, back=False)


def _list_notes(job: TableJob, rewriter: UnitRewriter) -> tuple[str, ...]:
    masters = MasterKeys.of(job.table.policy)
    notes = (MOVED_NOTE if rewriter.run.moves_old else rewriter.swap.warning, masters.weakness(masters.current))
    return tuple(note for note in notes if note is not None)


def _settle_history(
    job: TableJob, options: RunOptions, surveys: Sequence[UnitSurvey], *, tagged_only: bool = False
) -> None:
    """Remove the history properties of columns, which readers no longer need once all files match the plan.

    The history of columns under a shredded key is kept, since readers would refuse their files without it.

    Args:
        job: the table's job.
        options: the run's options; one over some partitions, a rotation, or one that brings units home, has not seen to
            the whole table.
        surveys: the table's units, as they were surveyed.
        tagged_only: keep the history of columns without a tag, which shows that a tag was removed, until a run has
            recorded the plan without that tag.
    """
    rest = options.rotate_key is not None or options.home  # looks at one key only, or at what is away from home
    whole = options.where is None and not rest
    if job.table.target.table is not None and whole:
        paths = {column.leaf.logical for column in job.table.target.plan.columns if column.tags or not tagged_only}
        paths -= {path for survey in surveys for path in survey.dark}
        Catalog(job.table.spark).unset_options(
            job.table.target.table, tuple(history_property(path) for path in sorted(paths))
        )


def _report_run(job: TableJob, run: CurrentRun, result: RunResult) -> Report:
    report = job.report(result, run.options.engine, run.warnings)
    return replace(report, warnings=(*report.warnings, *run.last_warnings))


def encrypt_table(
    spark: SparkSession,
    table: str | None,
    policy: PolicySource,
    *,
    path: str | None = None,
    avro: Schema | None = None,
    options: RunOptions | None = None,
    **named: Unpack[RunKeywords],
) -> Report:
    """Encrypt the files of a table or folder by its tags; units whose files all match the plan are left unchanged.

    Args:
        spark: a classic session; it will be configured with the policy.
        table: ``db.table``, or None with ``path`` or a saved plan (``plan=``), which names its own.
        policy: what the tags mean, or the path of its file.
        path: a bare folder of Parquet or ORC files.
        avro: an Avro schema whose tags are added to the target's tags.
        options: the run's options; single options may be given by name instead (``engine="native"``).
        **named: single options by their names in `RunOptions`.

    Returns:
        The report.

    Raises:
        PlanError, ConfigError: the target or the options are refused.
        VerificationError: files could not be read or proven; the unit is unchanged.
        RunConflictError: another run holds the table, or what a saved plan was made from has changed.
    """
    unknown = sorted(named.keys() - {field.name for field in fields(RunOptions)})
    if unknown:
        allowed = ", ".join(field.name for field in fields(RunOptions))
        raise ConfigError(f"option {unknown[0]!r} is not known; allowed: {allowed}")
    options = replace(options or RunOptions(), **named)
    options.check()
    saved = options.plan
    if saved is not None:
        options = replace(options, where=saved.where)
        table, path = (saved.table, saved.path) if table is None and path is None else (table, path)
    if (table is None) == (path is None):
        raise ConfigError("give either a table or a path")
    policy = policy_of(policy)
    configure(spark, policy)
    target = find_target(spark, table, path, policy, avro, options.engine)
    if saved is not None:
        saved.refuse_other_plan(target)
    options.on_plan(target.plan)
    target = target if options.dry_run else target.with_identity(policy)
    opened = open_target(spark, target, policy, options.progress)
    report = run_table(open_job(opened, options))
    if covers_table(options) and not options.dry_run:
        PassRecord(opened.store, target.table_id).keep(report)
    return report


def find_target(
    spark: SparkSession, table: str | None, path: str | None, policy: Policy, avro: Schema | None, engine: Engine
) -> Target:
    """Return a table or a bare folder as a target.

    Raises:
        PlanError: the table or folder does not exist, or its files cannot be swapped.
        ConfigError: the engine cannot rewrite it.
    """
    target: Target
    if path is not None:
        target = path_target(spark, path, policy, avro)
    else:
        target = catalog_target(spark, Catalog(spark).table(table or ""), policy, avro)
    if engine == "spark" and not FORMATS[target.format].rewritten_by_rows:
        raise ConfigError(
            f"{target.name}: Spark's engine rewrites Parquet alone; use --engine native, which rewrites ORC too"
        )
    if target.table is not None and target.table.bucket_columns and engine == "spark":
        raise ConfigError(
            f"{target.name} is bucketed: Spark's engine would give its files other names, by which buckets are told; "
            "use --engine native, which keeps them"
        )
    return target


def report_dry_run(job: TableJob) -> tuple[Report, Surveyed]:
    """Return the report of a dry run and its survey; nothing is changed.

    Units whose folder is missing or cannot be listed are quarantined in it, as they would be in a pass.

    Raises:
        SparkcryptError: as `survey_units`.
        VerificationError: the journal of an earlier run is damaged.
    """
    speed = bytes_a_second(job.table.trust.shown_log())
    surveyed = survey_units(job.table, job.reader, job.options)
    fast = None if speed is None else speed * job.options.parallelism
    lost = [(survey.name, error_of_folder(survey.name, survey.drift)) for survey in surveyed.units]
    failed = [FailedUnit(name, type(error).__name__, str(error)) for name, error in lost if error is not None]
    result = RunResult("dry-run", "dry run", surveyed.units, failed=failed, bytes_a_second=fast)
    moves = surveyed.drifted and not job.options.home
    move = describe_move(job.table.target.table) if job.table.target.table is not None and moves else None
    warnings = surveyed.warnings if move is None else (*surveyed.warnings, move)
    return job.report(result, job.options.engine, warnings), surveyed
