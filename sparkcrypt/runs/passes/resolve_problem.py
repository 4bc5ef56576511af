"""Resolution of open problems: the operator decides whether the new files or the old folder's content is right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.audit.manifest import CUT_OFF, GONE
from sparkcrypt.ledger.journal.entries import UnitResolved
from sparkcrypt.ledger.journal.journal import has_ended, is_paused
from sparkcrypt.ledger.unit import by_place, list_folders
from sparkcrypt.paths import comparable_path, is_same_place
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.compare_with_audit import resolve_listed, resolve_unread
from sparkcrypt.runs.old_folders.former_homes import resolve_stray
from sparkcrypt.runs.old_folders.late_commits import (
    find_home,
    note_resolution,
    problems_of,
    refuse_replaced,
)
from sparkcrypt.runs.old_folders.old_folder import OldFolder, take_out
from sparkcrypt.runs.old_folders.past_run import PastRuns, past_runs
from sparkcrypt.runs.old_folders.problems import BACK, BY_SQL, KEPT, OF_LIST, STRAY, Decision, Problem
from sparkcrypt.runs.old_folders.replacements import resolve_cut_off
from sparkcrypt.runs.old_folders.rollback import refuse_later, roll_back_unit
from sparkcrypt.runs.passes.run import open_job, run_table
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import refuse_moving
from sparkcrypt.runs.table.footers import DriverFooters, own_keys
from sparkcrypt.runs.table.open_table import open_target
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.scan import scan_footers
from sparkcrypt.runs.table.table_index import carry_index
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.runs.table.untouchable import refuse_unit
from sparkcrypt.spark.tables.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Resolved(JsonObject):
    """A resolved problem, the decision, and the report of the run over the old folder's content if that was kept."""

    problem: Problem
    keep: str
    reason: str
    run: Report | None


def resolve_problem(
    spark: SparkSession,
    table: str,
    policy: Policy,
    problem: str,
    decision: Decision,
    progress: Progress | None = None,
) -> Resolved:
    """Close an open problem of a table.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: the policy under which runs are made.
        problem: the problem's name.
        decision: ``new`` leaves the table unchanged; the files now in the old folder become known, and may expire.
            ``old`` puts the old folder's present content into use, by a rollback of the unit and a run over it.  If old
            files are in use again, ``new`` moves them out of the table instead, and ``old`` keeps them.
        progress: receives progress updates.

    Raises:
        ConfigError: no such problem is open, a run is unfinished, or an argument is not allowed.
        VerificationError: rows that were written since would be lost, or the old files cannot be used.
        RunConflictError: a run holds the table.
    """
    keep, reason = decision.keep, decision.reason
    if keep not in KEPT or not reason.strip():
        raise ConfigError(
            f"keep {keep!r} with reason {reason!r}: say new or old, and a reason that is not empty, for the audit"
        )
    decision, partition, run = replace(decision, reason=reason.strip()), None, None
    with past_runs(spark, table, policy, "resolve", progress) as runs:
        found = _find_problem(runs, problem)
        _refuse_unfinished(runs, found)
        of_run = False
        if found.kind == STRAY:
            resolve_stray(runs, found, decision)
        elif found.kind in OF_LIST:
            resolve_listed(runs, found, decision)
        elif found.run_id in runs.table.trust.unread or found.run_id not in runs.ids():
            resolve_unread(runs, found, decision)
        else:
            of_run = True
            with runs.rewriter(runs.journal(found.run_id)) as rewriter:
                partition = _find_old_folder(rewriter, found).status.unit.partition
                _resolve(rewriter, found, decision)
    if of_run and keep == "old":
        target = catalog_target(spark, Catalog(spark).table(table), policy, None)
        where = None if partition is None else partition.predicate
        options = RunOptions(keep_going=True, where=where, adopt=decision.adopt)
        run = run_table(open_job(open_target(spark, target, policy, runs.table.progress), options))
    return Resolved(found, keep, decision.reason, run)


def _resolve(rewriter: UnitRewriter, found: Problem, decision: Decision) -> None:
    journal, problems, old = rewriter.run.journal, problems_of(rewriter), _find_old_folder(rewriter, found)
    status = old.status
    keep = decision.keep
    if found.kind in BY_SQL and keep == "old":
        raise VerificationError(
            f"{found.unit}: {found.old_location} holds what a writer left there late, and not all rows of the unit; "
            "bring them into the table by SQL, and resolve the problem with --keep new; nothing was changed"
        )
    if found.kind == BACK:
        journal.resume(rewriter.run.lock.token)
        _resolve_back(rewriter, found, old, decision)
    elif found.kind == CUT_OFF:
        journal.resume(rewriter.run.lock.token)
        resolve_cut_off(rewriter, found, decision)
        if keep == "old" and status.swapped:  # a rollback was cut off, whose last step this was
            roll_back_unit(rewriter, old)
    elif keep == "old":
        if status.swapped:
            _refuse_old(rewriter, found, old, adopt=decision.adopt)
        journal.resume(rewriter.run.lock.token)
        if status.swapped:
            roll_back_unit(rewriter, old)
            run = rewriter.run
            carry_index(
                run.table.target, run.table.policy, run.table.store, run.table.files, (status,), back=True
            )  # the report of the run below tells if the store is stale
        note_resolution(rewriter, found, decision)
    else:
        journal.resume(rewriter.run.lock.token)
        listing = _list_old_folders(rewriter, old)
        if found.kind == GONE:
            listing["new"] = _files_in(rewriter, status.new_location)
        note_resolution(rewriter, found, decision, listing=listing)
        journal.write(UnitResolved(found.unit, found.problem, keep, listing))
    problems.close(found.problem, decision)


def _resolve_back(rewriter: UnitRewriter, found: Problem, old: OldFolder, decision: Decision) -> None:
    """Accept old files that are in use again as the table's, or move them out of the folder that is in use."""
    if decision.keep == "new":
        old = take_out(rewriter, old, found.old_location)
    listing = _list_old_folders(rewriter, old)
    note_resolution(rewriter, found, decision)
    rewriter.run.journal.write(UnitResolved(found.unit, found.problem, decision.keep, listing))


def _refuse_old(rewriter: UnitRewriter, found: Problem, old: OldFolder, *, adopt: bool) -> None:
    """Raise an error if putting an old folder into use would lose rows, or its files cannot be encrypted or trusted.

    Raises:
        VerificationError: it says why; nothing was changed.
    """
    run, status = rewriter.run, old.status
    unit, outcome = status.unit, status.outcome
    lacks_new = found.kind == GONE
    home = find_home(rewriter, status) if lacks_new else refuse_replaced(rewriter, status)
    if home is not status:
        raise VerificationError(
            f"{unit.name}: a later run has rewritten its files to {home.new_location}; look at "
            f"what differs in {outcome.old_location} with spark.read.parquet, change the table's rows by SQL, and "
            "resolve the problem with --keep new; nothing was changed"
        )
    if rewriter.swap.same_folder:
        refuse_moving(run.table.files, unit)
    refuse_later(rewriter, old)
    folders = list_folders(run.table.files, outcome.old_location)
    moved = comparable_path(outcome.old_location) != comparable_path(unit.location) and not rewriter.swap.same_folder
    if not folders or (moved and list_folders(run.table.files, unit.location)):
        what = f"there are files in {unit.location} too" if folders else f"{outcome.old_location} holds no files"
        raise VerificationError(
            f"{unit.name}: {what}, so the old folder cannot be put into use as it is; change the table's rows by SQL, "
            "and resolve the problem with --keep new; nothing was changed"
        )
    there = replace(unit, location=outcome.old_location, folders=folders)
    footers = DriverFooters(run.table.files, own_keys(run.table.policy.key_service)).read(there.files)
    scanned = scan_footers(there, footers, run.table.target, tell_shredded=run.table.trust.shredded.select)
    refuse_unit(
        scanned, run.table.target, run.table.policy, adopt=adopt, allow_decrypt=True
    )  # the run over it asks for consent


def _list_old_folders(rewriter: UnitRewriter, old: OldFolder) -> dict[str, list[list[Any]]]:
    """Return path and length of the files now in a unit's old folders, which the resolution makes known."""
    found: dict[str, list[list[Any]]] = {}
    for location in old.locations if old.status.swapped else ():
        found["old" if is_same_place(location, old.location) else "original"] = _files_in(rewriter, location)
    undone = (other.location for other in OldFolder.list_undone(rewriter.run.journal) if other.name == old.name)
    files = [file for location in undone for file in _files_in(rewriter, location)]
    return {**found, "undone": files} if files else found


def _files_in(rewriter: UnitRewriter, location: str) -> list[list[Any]]:
    files = by_place(location, list_folders(rewriter.run.table.files, location))
    return [[place, file.length] for place, file in sorted(files.items())]


def _find_problem(runs: PastRuns, problem: str) -> Problem:
    known = runs.problems().open()
    found = next(
        (open_problem for open_problem in known if open_problem.problem == problem and open_problem.run_id), None
    )
    if found is None:
        names = ", ".join(open_problem.problem for open_problem in known) or "none"
        raise ConfigError(f"{runs.table.target.name}: problem {problem} is not open; open: {names}")
    return found


def _refuse_unfinished(runs: PastRuns, found: Problem) -> None:
    """Refuse a decision while a run is unfinished; one on a swap that was cut off ends that run."""
    for journal in runs.list_readable():
        ends = found.kind == CUT_OFF and journal.run.run_id == found.run_id
        if not (ends or has_ended(journal) or is_paused(journal)):
            raise ConfigError(
                f"{runs.table.target.name}: run {journal.run.run_id} is unfinished; run the job again to finish it "
                "first"
            )


def _find_old_folder(rewriter: UnitRewriter, found: Problem) -> OldFolder:
    status = rewriter.run.journal.status_of(found.unit)
    return OldFolder(rewriter.run.journal, status.failed_at or status)
