"""One run over one target, under its lock: survey the units, rewrite those that differ from the plan, and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sparkcrypt.ledger.journal.entries import RunFinished, RunPaused
from sparkcrypt.ledger.journal.journal import Journal, new_run_id
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.state.lock import RunLock, acquire, acting_user
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.runs.index.carry_names import carry_index, explain_stale
from sparkcrypt.runs.old_folders.late_commits import compare_run
from sparkcrypt.runs.passes import unit_work
from sparkcrypt.runs.passes.begin import Begun, SoFar, begin_run, choose_run_id, refuse_records_of_another
from sparkcrypt.runs.passes.job import TableJob
from sparkcrypt.runs.passes.result import RunResult, find_last_audit, result_of_failed_run
from sparkcrypt.runs.passes.survey import report_dry_run, survey_units
from sparkcrypt.runs.passes.unit_work import UnitWork
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import Progressed, order_units, work_through
from sparkcrypt.runs.rewrite.swap import MOVED_NOTE, choose_swap, refuse_other_file_systems
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter, rewriter_of
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.tags.model import history_property


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended; ``drifted_again`` if units that it had swapped before differ again and were skipped."""

    report: Report
    drifted_again: bool = False


def run_table(job: TableJob, on_failure: Callable[[Report], None] = lambda _: None) -> Report:
    """Bring a target to its plan; an unfinished run is finished first, with the options with which it began.

    An unfinished run over other partitions than those asked for is brought to a clean state and stays paused: the
    caller did not ask for it, and it may have had a budget.  A unit that an unfinished run has swapped and that differs
    again is left to a new run, since one run keeps only one old folder for each unit.

    Args:
        job: the job.
        on_failure: called with the partial report before an error that ends a run with a journal is re-raised.

    Raises:
        RunConflictError: another run holds the target.
        SparkcryptError: an error ended the run; each unit is unchanged or swapped.
    """
    if job.options.dry_run:
        choose_swap(job.table, "dry-run", job.options)  # what it refuses, before any unit is surveyed
        job.old_files.look_without_lock()
        return job.old_files.report_open_problems(report_dry_run(job)[0])
    run_id, so_far = choose_run_id(job), SoFar(job.options)
    try:
        with acquire(job.table.store, job.table.target.table_id, run_id=run_id, owner=acting_user()) as lock:
            lock.keep_alive()
            job.table.trust.look_again()
            refuse_records_of_another(job)
            begun = begin_run(job, run_id, lock, so_far)
            ended = execute_run(job, begun, lock, so_far)
            first = _explain_rerun(job, begun, ended)
            if first is not None:
                ended = execute_run(job, Begun(new_run_id(), job.options, last_words=(first,)), lock, so_far)
            return job.old_files.report_open_problems(ended.report)
    except BaseException:
        if so_far.journal is not None:
            failed = result_of_failed_run(so_far.journal, so_far.surveys)
            on_failure(job.report(failed, so_far.options.engine, so_far.warnings))
        raise


def execute_run(job: TableJob, begun: Begun, lock: RunLock, so_far: SoFar) -> _Ended:
    """Take every unit that differs from the plan through its steps, and finish or pause the run.

    Raises:
        SparkcryptError: an error ended the run.
    """
    options, so_far.options = begun.options, begun.options
    job.old_files.look_after(lock, but=None if begun.journal is None else begun.run_id)
    if begun.journal is None:
        choose_swap(job.table, begun.run_id, options)  # what it refuses, before any unit is surveyed
    surveyed = survey_units(job, options, job.old_files.compare)
    job.old_files.settle_listed(whole=options.where is None, adopt=options.adopt)
    so_far.surveys, so_far.warnings = surveyed.units, (*so_far.warnings, *surveyed.warnings)
    drifted = order_units(surveyed.drifted, job.table.target.plan, job.table.policy)
    if options.move_old:
        refuse_other_file_systems(tuple(survey.unit for survey in drifted), job.table.target.base)
    if begun.journal is None and not drifted:
        _settle_history(job, options, surveyed.units, tagged_only=True)
        return _Ended(_report_run(job, begun, so_far, RunResult(begun.run_id, "nothing to do", surveyed.units)))
    journal = so_far.journal = begun.journal or Journal.start(
        job.table.store, job.run_record(begun.run_id, options, lock), job.table.trust.mac(renew=True)
    )
    with job.context(journal, lock) as context:
        rewriter = rewriter_of(context, options, resumed=begun.journal is not None)
        swapped = begun.recovered.names  # the survey finds drift in a copied unit too, since its source is unchanged
        todo = [survey for survey in drifted if survey.name not in swapped]
        ours = {outcome.name for outcome in begun.recovered.outcomes}
        drifted_again = not rewriter.swap.copies and any(survey.name in ours for survey in drifted)
        with _show_progress(job, todo):
            todo, undecided = job.old_files.leave_out_undecided(todo, keep_going=options.keep_going)
            work = UnitWork(rewriter, job.reader, options, job.old_files.refuse_replayed)
            progressed = work_through(
                todo,
                work.process,
                work.locate,
                pauses=unit_work.PAUSES_SECONDS,
                parallelism=options.parallelism,
                budget=job.budget,
                keep_going=options.keep_going,
            )
        progressed.outcomes[:0] = begun.recovered.outcomes
        progressed.failed.extend([*undecided, *compare_run(rewriter).failed])
        progressed.unsettled.extend(begun.recovered.problems)
        if progressed.outcome in ("done", "nothing to do") and not drifted_again:
            _settle_history(job, options, surveyed.units)
        index = None if rewriter.swap.copies else _carry_index(job, journal)
        so_far.warnings = (*so_far.warnings, *explain_stale(job.table.target.name, index))
        result = replace(_end_run(job, rewriter, progressed, surveyed.units, begun), index=index)
        return _Ended(_report_run(job, begun, so_far, result), drifted_again)


def _explain_rerun(job: TableJob, begun: Begun, ended: _Ended) -> str | None:
    """Return a note on the unfinished run that was finished first; None if no further run is needed."""
    report = ended.report
    elsewhere = begun.options.where != job.options.where and job.options.resume == "auto"
    requested, done = ((options.rotate_key, options.rotate_from) for options in (job.options, begun.options))
    otherwise = requested != done
    if report.outcome == "stopped at budget" or not (elsewhere or otherwise or ended.drifted_again):
        return None
    why = "was over other partitions" if elsewhere else "had swapped some units before they drifted again"
    if otherwise:
        rotated = begun.options.rotate_key
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


def _end_run(
    job: TableJob, rewriter: UnitRewriter, progressed: Progressed, surveys: Sequence[UnitSurvey], begun: Begun
) -> RunResult:
    """Record that a run has finished or paused; a run with an unsettled unit stays unfinished."""
    outcome, journal = progressed.outcome, rewriter.run.journal
    if outcome == "stopped at budget":
        journal.write(RunPaused(len(progressed.left)))
    elif not progressed.unsettled:
        journal.write(RunFinished(outcome))
    return RunResult(
        rewriter.run.run_id,
        outcome,
        surveys,
        outcomes=progressed.outcomes,
        earlier=begun.recovered.outcomes,
        failed=[*progressed.failed, *progressed.unsettled],
        left=progressed.left,
        swap=rewriter.swap.name,
        notes=_list_notes(job, rewriter) if progressed.outcomes else (),
        audit=find_last_audit(journal),
    )


def _carry_index(job: TableJob, journal: Journal) -> dict[str, Any] | None:
    """Update the table's store for data skipping for all files that this or an earlier execution of the run swapped."""
    statuses = status_of_units(journal.records).values()
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


def _report_run(job: TableJob, begun: Begun, so_far: SoFar, result: RunResult) -> Report:
    report = job.report(result, begun.options.engine, so_far.warnings)
    return replace(report, warnings=(*report.warnings, *begun.last_words))
