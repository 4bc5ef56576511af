"""The moving of a swapped unit's old files out of the table's folder, where a run does that right after the swap."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.ledger.journal.entries import UnitMoved
from sparkcrypt.ledger.unit import Unit, UnitOutcome, old_folder
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS, RunContext
from sparkcrypt.runs.rewrite.swap import Swap
from sparkcrypt.runs.table.disposal import find_foreign_in
from sparkcrypt.spark.files.hadoop import HadoopFiles

MOVED_NOTE = (
    "old files were moved out of the table's folder: readers that had listed them fail with 'file not found' and must "
    "run again; `sparkcrypt backfill expire` deletes them"
)
"""The report's warning after a run that moved old files right after the swap."""


def move_old_files(
    run: RunContext, swap: Swap, outcome: UnitOutcome, unit: Unit, staged: str, base: str
) -> UnitOutcome:
    """Move a swapped unit's old files out of the table's folder, if the run moves old files.

    The metastore is queried and the folder listed before and after; if the old folder is in use again, or has anything
    beside data that is no run's, the files stay there or are put back.

    Args:
        run: the run's context.
        swap: the run's swap.
        outcome: the outcome of the unit's swap.
        unit: the unit as it was listed.
        staged: the folder in which its new files were made.
        base: the table's original folder when the unit was swapped.

    Returns:
        The outcome, with the new folder of the old files, or with a note why they were not moved.

    Raises:
        RunConflictError: the lock is lost.
        VerificationError: there are files at both places, and nothing uses the old folder.
        SparkcryptError: the file system refused; the same command retries.
    """
    if not run.moves_old:
        return outcome
    run.lock.check()
    files, old, to = run.table.files, outcome.old_location, old_folder(base, run.run_id, unit.partition_path)
    user = _user_of_old(run, swap, unit, staged, old) or find_foreign_in(files, old, old)
    if user is None:
        move_old(files, unit.name, old, to)
        user = _user_of_old(run, swap, unit, staged, old) or find_foreign_in(files, old, to)
        stays = user is not None and move_back(files, old, to)
    else:
        stays = not files.exists(to)  # else they were moved before, and another writer's files are in their old folder
    if stays:
        return replace(outcome, notes=(*outcome.notes, f"old files were left in {old}, since {user}"))
    outcome = replace(outcome, old_location=to)
    run.journal.write(UnitMoved(outcome))
    return outcome


def locate_old_files(run: RunContext, swap: Swap, unit: Unit, base: str) -> str:
    """Return the folder of a swapped unit's old files: where the swap left them, or where the run moved them.

    Args:
        run: the run's context.
        swap: the run's swap.
        unit: the unit.
        base: the table's original folder when the unit was swapped.
    """
    to = old_folder(base, run.run_id, unit.partition_path)
    return to if run.moves_old and run.table.files.exists(to) else swap.old_location(unit)


def _user_of_old(run: RunContext, swap: Swap, unit: Unit, staged: str, old: str) -> str | None:
    """Return what uses the folder of the old files, as a text; None if nothing does.

    This unit's location is queried each time; those of the table's other units if the last answer is too old.
    """
    if not swap.repoints:
        return None
    here, in_use = swap.current_location(unit), run.table.in_use
    own = run.table.target.name if unit.partition is None else unit.name
    user = in_use.find_own(seconds_old=ANSWER_SECONDS).user_of(old, but=own)
    if user is not None or here is None or comparable_path(here) == comparable_path(staged):
        return user
    return in_use.place(own, here).user_of(old)


def move_old(files: HadoopFiles, unit: str, old: str, to: str) -> None:
    """Rename a unit's old folder to where the run keeps old files, unless that was done already.

    Args:
        files: the file system.
        unit: the unit's name, for messages.
        old: the folder in which the swap left the old files.
        to: a folder that only this run uses.

    Raises:
        VerificationError: there are files at both places: a writer re-created the old folder, or a move was
            interrupted.
        SparkcryptError: the file system refused; the same command retries.
    """
    if comparable_path(old) == comparable_path(to):
        return
    if files.exists(to):
        again = files.data_files(old)
        if again:
            raise VerificationError(
                f"{unit}: old files are at {to} already, and {again[0].path} is at the old place again: a late commit "
                "left it, or the file system moved the folder in part; insert its rows into the table if they are not "
                "there, move it to a folder that no table reads, then run again"
            )
        return
    if files.exists(old):
        files.make_folder(to.rstrip("/").rpartition("/")[0])
        files.rename(old, to)


def move_back(files: HadoopFiles, old: str, to: str) -> bool:
    """Rename old files back to the folder in which the swap left them, since that folder is in use again.

    Returns:
        False if the folder was re-created: old files beside its new content would bring old rows back.
    """
    if files.exists(old):
        return False
    files.make_folder(old.rstrip("/").rpartition("/")[0])
    files.rename(to, old)
    return True


def refuse_other_file_systems(units: tuple[Unit, ...], base: str) -> None:
    """Check that old files can be moved by a rename, which cannot cross file systems.

    Raises:
        PlanError: it names the unit.
    """
    for unit in units:
        if urlsplit(unit.location)[:2] != urlsplit(base)[:2]:
            raise PlanError(
                f"{unit.name}: its folder {unit.location} is on another file system than the table's ({base}), so "
                "--move-old cannot rename it; leave --move-old out, and dispose of old files by `sparkcrypt backfill "
                "expire`"
            )
