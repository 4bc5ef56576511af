"""Comparison of old folders with what their run had listed: late commits are reconciled, or a problem is opened.

Files that were added are reconciled only if nothing else has happened: two listings, some time apart, show that no
listed file is missing and no writer is at work.  A compaction adds files before it removes others, so its rows would
otherwise be duplicated.  Listed files that are missing were deleted, or replaced by an overwrite that was planned
before the swap, and the table still has their rows: this is an open problem of the table, which only the operator can
decide.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import RunConflictError, SourceChangedError, SparkcryptError, VerificationError
from sparkcrypt.runs.old_folders.changed_folders import Suspect, find_suspects, is_superseded
from sparkcrypt.runs.old_folders.changes import Changes
from sparkcrypt.runs.old_folders.ended_writers import Listing, wait_until_quiet
from sparkcrypt.runs.old_folders.problems import (
    BACK,
    EMPTIED,
    UNDONE,
    WRITER_AT_WORK,
    Problem,
    Problems,
    problems_of_target,
)
from sparkcrypt.runs.old_folders.reconcile import late_commit_message, reconcile_files
from sparkcrypt.runs.rewrite.context import append_audit
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter


@dataclass(frozen=True, slots=True)
class Compared:
    """The number of files that were reconciled, and the units of which something stays open, each with its reason."""

    carried: int = 0
    failed: tuple[FailedUnit, ...] = ()


def compare_run(rewriter: UnitRewriter, units: Collection[str] | None = None) -> Compared:
    """Compare the old folders of a run's units with what it had listed; reconcile late commits or open problems.

    Args:
        rewriter: the run's rewriter of units.
        units: the names of the units; all of them by default.  Folders of undone swaps are compared in any case.

    Returns:
        How many files were reconciled, and the units of which something stays open, whose old files must be kept.

    Raises:
        RunConflictError: the lock is lost.
    """
    if rewriter.swap.copies:  # its source is no old folder and may still be written to
        return Compared()
    failed: list[FailedUnit] = []
    suspects = find_suspects(rewriter, units, failed)
    quiet = _wait_for_writers(rewriter, [suspect for suspect in suspects if suspect.changes.came])
    carried = 0
    for suspect in suspects:
        try:
            carried += _decide(rewriter, suspect, quiet.get(suspect.changes.location), failed)
        except RunConflictError:
            raise
        except SparkcryptError as error:
            failed.append(FailedUnit(suspect.name, type(error).__name__, str(error)))
    return Compared(carried, tuple(failed))


def problems_of(rewriter: UnitRewriter) -> Problems:
    """Return the problems of the table that a rewriter works on."""
    run = rewriter.run
    return problems_of_target(run.table.target, run.table.store, lambda: run.mac, run.table.files)


def _wait_for_writers(rewriter: UnitRewriter, suspects: list[Suspect]) -> dict[str, Listing]:
    """Wait for the writers of added files; folders of units with an open problem are only listed once more."""
    if not suspects:
        return {}
    run = rewriter.run
    known = {problem.unit for problem in problems_of(rewriter).open() if problem.run_id == run.run_id}
    waits = {suspect.changes.location: suspect.name not in known for suspect in suspects}
    run.table.progress.step(suspects[0].name, "waiting until writers have ended")
    listed = {suspect.changes.location: suspect.listed for suspect in suspects}
    return wait_until_quiet(run.table.files, waits, run.table.target.base, listed)


def _decide(rewriter: UnitRewriter, suspect: Suspect, quiet: Listing | None, failed: list[FailedUnit]) -> int:
    """Reconcile the files added to an old folder, or open a problem; return the number of reconciled files."""
    name, status, changes = suspect.name, suspect.status, suspect.changes
    if suspect.back:
        failed.append(open_problem(rewriter, name, changes, BACK, _back_message(suspect), suspect.back))
        return 0
    if quiet is not None:
        changes = suspect.compare(quiet.folders)
    problem = _describe_problem(rewriter, suspect, changes, quiet)
    if problem is None and changes.came:
        try:
            rewriter.run.continue_journal()
            reconcile_files(rewriter, name, status, changes.location, changes.came)
            _settle(rewriter, name)
            return len(changes.places)
        except SourceChangedError:
            raise
        except VerificationError as error:
            problem = "cannot be carried over", str(error)
    if problem is not None:
        failed.append(open_problem(rewriter, name, changes, *problem))
    return 0


def _describe_problem(
    rewriter: UnitRewriter, suspect: Suspect, changes: Changes, quiet: Listing | None
) -> tuple[str, str] | None:
    """Return the kind and the message of a problem; None if added files may be reconciled, or nothing is to be done."""
    name, status, location = suspect.name, suspect.status, changes.location
    came = f"{changes.places[0]}{_name_more(changes.places)} came to the old folder {location}" if changes.came else ""
    missing = f"{changes.gone[0]}{_name_more(changes.gone)}" if changes.gone else ""
    if changes.only_gone and is_superseded(rewriter, name, status):
        return None
    if changes.carried and missing:
        return (
            "carried over, then removed",
            f"{name}: {', '.join(changes.carried)} had come to the old folder {location} and was carried over, and "
            f"{missing}, which was known there, is gone or changed since: a compaction may have written the same rows "
            "once more, so that the table has them twice, or they were erased" + (f"; {came}" if came else ""),
        )
    if came and missing:
        return (
            "overwritten",
            f"{name}: {came}, and {missing}, which the run had listed, is gone or changed: a late commit overwrote the "
            "unit there, or compacted it; nobody can tell which rows should be there; nothing was changed",
        )
    if missing:
        return (
            "removed",
            f"{name}: {missing}, which the run had listed, is gone from the old folder {location}, or changed: someone "
            "erased rows there that the table still has, or deleted old files; nothing was changed",
        )
    if came and suspect.undone is not None and not status.swapped:
        return (
            UNDONE,
            f"{name}: {came}, which was in use until the run took its swap back: the writer had planned before that, "
            "and the table has not its rows; read it with spark.read.parquet, and insert its rows into the table",
        )
    if came and suspect.undone is None and not rewriter.swap.repoints:
        return "came late", late_commit_message(name, changes.came[0].files[0].path)
    if came and not changes.holds_known:
        return (
            EMPTIED,
            f"{name}: {came}, from which all that the run knew there is gone (the old files are in "
            f"{status.outcome.old_location}), so nobody can tell whether its writer meant to add rows or to replace "
            "them; nothing was changed; read it with spark.read.parquet, and insert its rows into the table; if they "
            "should replace rows, look at those of this unit first, and leave all others as they are",
        )
    if came and quiet is not None and quiet.at_work is not None:
        return (
            WRITER_AT_WORK,
            f"{name}: {came}, and {quiet.at_work} is there, so its writer may not have ended; it is carried over by a "
            "later run when that is gone: delete it if its writer was killed",
        )
    return None


def _back_message(suspect: Suspect) -> str:
    return (
        f"{suspect.name}: the table points to {suspect.changes.location} again, and {suspect.back[0]}"
        f"{_name_more(suspect.back)} there had been replaced by the run: DROP PARTITION, followed by an INSERT, ADD "
        "PARTITION or MSCK REPAIR TABLE, brought old rows back; the unit stays unchanged"
    )


def open_problem(
    rewriter: UnitRewriter, name: str, changes: Changes, kind: str, message: str, back: tuple[str, ...] = ()
) -> FailedUnit:
    """Open a problem of a table; for a bare folder, which has none, the finding is only reported."""
    run = rewriter.run
    if run.table.target.table is None:
        return FailedUnit(name, "VerificationError", message)
    found = Problem(
        problem="",
        table=run.table.target.name,
        run_id=run.run_id,
        unit=name,
        kind=kind,
        old_location=changes.location,
        came=back or changes.places,
        gone=changes.gone,
        carried=changes.carried,
        message=message,
        base=run.table.target.base,
    )
    return problems_of(rewriter).add(found).as_failed()


def _settle(rewriter: UnitRewriter, name: str) -> None:
    """Close the problem of a writer at work once its files are reconciled."""
    run, problems = rewriter.run, problems_of(rewriter)
    open_one = problems.of(run.run_id, name) if run.table.target.table is not None else None
    if open_one is not None and open_one.kind == WRITER_AT_WORK:
        reason = "its writer has ended, and its files were carried over"
        note_resolution(rewriter, open_one, "both", reason)
        problems.close(open_one.problem, "both", reason)


def note_resolution(rewriter: UnitRewriter, problem: Problem, keep: str, reason: str, **more: Any) -> None:
    """Write the decision on a problem into the audit."""
    append_audit(rewriter.run, "resolve", "none", {**problem.resolution(keep, reason), **more}, None, [])


def _name_more(places: tuple[str, ...]) -> str:
    return f" and {len(places) - 1:,} more" if len(places) > 1 else ""
