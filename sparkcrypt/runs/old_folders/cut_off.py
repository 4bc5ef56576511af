"""Swaps that were cut off: to a unit's folder something came before its swap was finished or recorded.

The rows from before are then in the old folder, and the same rows, rewritten, where they were staged; what came may add
to them (an INSERT) or replace them (an overwrite, TRUNCATE).  Only a person can tell, so this is an open problem.
"""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.entries import RunFinished, UnitFailed, UnitResolved
from sparkcrypt.ledger.journal.unit_status import Attempt, attempts_of, has_ended, status_of_units
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.unit import by_place, list_folders, list_location, path_below
from sparkcrypt.runs.old_folders.changes import Changes
from sparkcrypt.runs.old_folders.check_replacements import describe_cut_off
from sparkcrypt.runs.old_folders.compare_with_journal import note_resolution, open_problem
from sparkcrypt.runs.old_folders.problems import CUT_OFF, Problem
from sparkcrypt.runs.old_folders.reconcile import proven_files
from sparkcrypt.runs.rewrite.recover import Recovered
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import refuse_moving
from sparkcrypt.runs.table.in_use import refuse_used
from sparkcrypt.spark.files.hadoop import HadoopFiles


def open_cut_off(rewriter: UnitRewriter, recovered: Recovered) -> Recovered:
    """Open a problem for each swap that was cut off, and add it to the problems of the recovered units."""
    for attempt in recovered.cut_off:
        old, here = _name_folders(rewriter, attempt)
        message = describe_cut_off(attempt.name, here, old, attempt.staged)
        recovered.problems.append(open_problem(rewriter, attempt.name, Changes(old, (), (), ()), CUT_OFF, message))
    return recovered


def resolve_cut_off(rewriter: UnitRewriter, found: Problem, keep: str, reason: str) -> None:
    """Carry out a decision on a swap that was cut off, and end its run; a call that was killed is continued.

    Args:
        rewriter: the rewriter of the run's units.
        found: the problem.
        keep: ``old`` puts the old files back, beside the files that came since; ``new`` leaves the unit's folder as it
            is, and lets the old files expire.
        reason: the reason, for the audit.

    Raises:
        SourceChangedError: a writer is at work.
        VerificationError: a file is in the way, or another table uses the old folder; the decision can be given again.
    """
    run, new = rewriter.run, _find_new_files(rewriter, found.unit)
    refuse_moving(run.table.files, new.unit)
    given_up, listing = "", {}
    if keep == "old":
        _bring_back(rewriter, new)
    elif rewriter.swap.is_begun(new):
        given_up = rewriter.swap.old_location(new.unit)
        old = by_place(given_up, list_folders(run.table.files, given_up))
        listing = {"old": [[place, file.length] for place, file in sorted(old.items())]}
    note_resolution(rewriter, found, keep, reason, listing=listing)
    run.journal.write(UnitResolved(found.unit, found.problem, keep, listing, given_up, cut_off=True))
    if keep == "old":
        run.journal.write(UnitFailed(found.unit, f"its swap was cut off, and taken back: {reason}"))
    if not has_ended(run.journal):
        run.journal.write(RunFinished("abandoned"))


def _find_new_files(rewriter: UnitRewriter, unit: str) -> NewFiles:
    """Return the new files of the unit's swap, or of its rollback, that was cut off."""
    records = rewriter.run.journal.records
    status = status_of_units(records)[unit]
    return proven_files(status) if status.swapped else attempts_of(records)[unit][-1].new_files


def _bring_back(rewriter: UnitRewriter, new: NewFiles) -> None:
    """Move what came to the unit's folder beside the old files, and put the old folder back into use."""
    run, swap = rewriter.run, rewriter.swap
    if not swap.is_begun(new):
        return  # a killed call had come to its end
    old, here = swap.old_location(new.unit), swap.final_location(new.unit, new.staged)
    own = run.table.target.name if new.unit.partition is None else new.unit.name
    refuse_used(run.table.in_use.look(afresh=True), own, old, "holds old files that are to be put back")
    for folder in list_folders(run.table.files, here):
        for file in folder.files:
            run.lock.check()
            target = f"{old}/{path_below(here, file.path)}"
            run.table.files.make_folder(target.rpartition("/")[0])
            run.table.files.rename(file.path, target)
    if swap.repoints:
        swap.undo(new)
    else:
        _remove_emptied(run.table.files, here)
        swap.put_back(new)


def _remove_emptied(files: HadoopFiles, folder: str) -> None:
    """Remove a folder from which all data files were moved.

    Raises:
        VerificationError: it has another file, which is named.
    """
    if not files.exists(folder):
        return
    _, beside = list_location(files, folder)
    for entry in beside:
        if entry.kind != "written":
            raise VerificationError(
                f"{folder}/{entry.path} is in the way of the old files; move it away, then give the same decision "
                "again; nothing was deleted"
            )
    files.delete_tree(folder)


def _name_folders(rewriter: UnitRewriter, attempt: Attempt) -> tuple[str, str]:
    unit, swap = attempt.listed.unit, rewriter.swap
    return swap.old_location(unit), swap.final_location(unit, attempt.staged)
