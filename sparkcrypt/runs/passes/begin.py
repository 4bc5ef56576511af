"""Start of a run: begins a new one or continues an unfinished one, whose units are first brought to a clean state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkcrypt.errors import KeyNotFoundError, PlanError, RunConflictError, VerificationError
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.entries import RunFinished, RunPaused
from sparkcrypt.ledger.journal.journal import Journal, check_same_policy, new_run_id
from sparkcrypt.ledger.journal.unit_status import is_paused
from sparkcrypt.ledger.state.lock import RunLock
from sparkcrypt.policy.model import normalized_table
from sparkcrypt.runs.old_folders.replacements import open_cut_off
from sparkcrypt.runs.passes.job import TableJob
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.recover import Recovered, recover
from sparkcrypt.runs.rewrite.unit_rewriter import rewriter_of
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import shared_text

_BEFORE_STAGING = ("run_started", "run_resumed", "unit_listed", "unit_failed", "run_paused")
"""Kinds of records of a run that has staged no file."""


@dataclass(slots=True)
class SoFar:
    """Progress of an execution, updated as it proceeds: for its report, also if an error ends it."""

    options: RunOptions
    journal: Journal | None = None
    surveys: Sequence[UnitSurvey] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that is about to work on units.

    Attributes:
        run_id: its id.
        options: the options with which it begins, or with which it began.
        journal: the journal of an unfinished run; a new run gets its journal only if a unit differs from the plan.
        recovered: what became of the units of an unfinished run.
        last_words: warnings that its report lists last.
    """

    run_id: str
    options: RunOptions
    journal: Journal | None = None
    recovered: Recovered = field(default_factory=Recovered)
    last_words: tuple[str, ...] = ()


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
    run_id = next(iter(reversed(Journal.runs(job.table.store, job.table.target.table_id))), None)
    try:
        name = None if run_id is None else Journal.find_table(job.table.store, job.table.target.table_id, run_id)
    except VerificationError:
        return  # reported where the run's records are read
    catalog = Catalog(job.table.spark)
    if name is None or normalized_table(name) == normalized_table(job.table.target.name) or not catalog.exists(name):
        return
    other = catalog.table(name)
    if other.uuid == table.uuid:
        raise PlanError(shared_text(table, [other]))


def begin_run(job: TableJob, run_id: str, lock: RunLock, so_far: SoFar) -> Begun:
    """Return the run to work on, after bringing the units of an unfinished run to a clean state.

    Args:
        job: the job.
        run_id: the id from `choose_run_id`.
        lock: the target's lock.
        so_far: receives the journal and the options of a continued run.

    Raises:
        RunConflictError: the unfinished run began under another policy, or another driver continues it.
        VerificationError: a unit of the unfinished run has new files in use that cannot be proven, or a swap of it was
            cut off, which `--resume never` does not settle.
    """
    options = job.options
    if not _may_continue(job.table.trust, run_id):
        return Begun(new_run_id() if run_id in job.table.trust.unread else run_id, options)
    journal = job.table.trust.journal(run_id)
    elsewhere = options.where is not None and options.resume == "auto" and journal.run.where != options.where
    lacked = _find_lacking_key(job, journal)
    recovered = _take_over(job, journal, lock, so_far, abandons=options.resume == "never" or lacked is not None)
    if elsewhere and lacked is None:
        return Begun(new_run_id(), options, last_words=(_let_wait(journal, recovered),))
    if lacked is not None and (recovered.names or recovered.cut_off):
        check_same_policy(journal, job.table.policy.digest())
    if options.resume == "never" or lacked is not None:
        journal.write(RunFinished("abandoned"))
        so_far.warnings += (
            *(problem.message for problem in recovered.problems),
            *([] if lacked is None else [f"run {run_id} was closed, and another begun: {lacked}"]),
        )
        return Begun(new_run_id(), options)
    return Begun(run_id, so_far.options, journal, recovered)


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


def _take_over(job: TableJob, journal: Journal, lock: RunLock, so_far: SoFar, *, abandons: bool) -> Recovered:
    """Continue the journal of an unfinished run, and bring its units to a clean state."""
    if not abandons:
        check_same_policy(journal, job.table.policy.digest())
    journal.resume(lock.token)
    so_far.journal, so_far.options = journal, job.options.as_begun(journal.run.options)
    with job.context(journal, lock) as context:
        rewriter = rewriter_of(context, so_far.options, resumed=True)
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
