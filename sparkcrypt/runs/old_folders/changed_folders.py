"""Search for old folders of a run that have changed: files were added, are missing, or are in use again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus, status_of_units, undone_attempts
from sparkcrypt.ledger.unit import Folder, list_folders
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.changes import (
    Changes,
    changes_at,
    changes_at_undone,
    expired_folders,
    expiring_folders,
)
from sparkcrypt.runs.old_folders.grace import find_files_back, folders_in_use, settle_move
from sparkcrypt.runs.old_folders.reconcile import (
    finish_reconciling,
    follow_unit,
    missing_new_files,
    new_files,
    old_locations,
)
from sparkcrypt.runs.rewrite.recover import belongs_to_another
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter


@dataclass(frozen=True, slots=True)
class Suspect:
    """A unit with an old folder that has changed.

    Attributes:
        name: the unit's name.
        status: the unit's status.
        changes: the changes in the folder.
        listed: the folder's files.
        back: old files in it that the table reads again.
        undone: the attempt that staged the folder, if its swap was undone; else None.
    """

    name: str
    status: UnitStatus
    changes: Changes
    listed: tuple[Folder, ...]
    back: tuple[str, ...] = ()
    undone: Attempt | None = None

    def compare(self, folders: tuple[Folder, ...]) -> Changes:
        """Compare a new listing of the folder with the files that are known to be in it."""
        if self.undone is not None:
            return changes_at_undone(self.undone, folders, self.status)
        return changes_at(self.status.unit, self.changes.location, folders, self.status)


def list_suspects(
    rewriter: UnitRewriter, units: Collection[str] | None, failed: list[FailedUnit]
) -> list[tuple[str, Changes]]:
    """Return the units with changed old folders, and the changes; nothing is written; see `find_suspects`."""
    if rewriter.swap.copies:
        return []
    return [(suspect.name, suspect.changes) for suspect in find_suspects(rewriter, units, failed, finish=False)]


def find_suspects(
    rewriter: UnitRewriter, units: Collection[str] | None, failed: list[FailedUnit], *, finish: bool = True
) -> list[Suspect]:
    """Return the units with changed old folders.

    Args:
        rewriter: the run's rewriter of units.
        units: the names of the units; all of them by default.
        failed: receives the units that could not be checked.
        finish: finish reconciling and moves that a killed command had begun; otherwise nothing is written.

    Raises:
        RunConflictError: the lock is lost.
    """
    run, found = rewriter.run, list[Suspect]()
    expired = expired_folders(run.journal.records)
    used: set[str] | None = None
    statuses = status_of_units(run.journal.records)
    for name, status in statuses.items():
        if not status.swapped or _is_accepted(status) or (units is not None and name not in units):
            continue
        if comparable_path(status.outcome.old_location) in expired:
            continue
        try:
            used = folders_in_use(rewriter) if used is None else used
            if finish and status.is_carrying:
                run.continue_journal()
                status = finish_reconciling(rewriter, name, status)
            found.extend(_find_in_unit(rewriter, name, status, used, finish=finish))
        except RunConflictError:
            raise
        except SparkcryptError as error:
            failed.append(FailedUnit(name, type(error).__name__, str(error)))
    return [*found, *_of_undone(rewriter, statuses, expired)]


def _of_undone(rewriter: UnitRewriter, statuses: Mapping[str, UnitStatus], expired: set[str]) -> Iterator[Suspect]:
    """Yield the units with files that were added to folders of undone swaps."""
    run = rewriter.run
    for name, attempt in undone_attempts(run.journal.records, statuses):
        if comparable_path(attempt.staged) in expired or run.table.in_use.find_own(seconds_old=60.0).uses(
            attempt.staged
        ):
            continue
        listed = list_folders(run.table.files, attempt.staged)
        changes = changes_at_undone(attempt, listed, statuses[name])
        if changes:
            yield Suspect(name, statuses[name], changes, listed, undone=attempt)


def _find_in_unit(
    rewriter: UnitRewriter, name: str, status: UnitStatus, used: set[str], *, finish: bool
) -> Iterator[Suspect]:
    files, unit = rewriter.run.table.files, status.unit
    for location in old_locations(status) if rewriter.swap.repoints else (status.old_location,):
        listed = list_folders(files, location)
        if comparable_path(location) in used and rewriter.swap.repoints:
            back = find_files_back(name, status, location, listed)
            if back:
                yield Suspect(name, status, Changes(location, (), (), ()), listed, back)
            continue
        changes = changes_at(unit, location, listed, status)
        if changes.only_gone and _is_expiring(rewriter, location):
            continue
        if changes.gone and not listed and finish:
            moved = settle_move(rewriter, name, status)
            if moved is not status:
                yield from _find_in_unit(rewriter, name, moved, used, finish=finish)
                return
        came = changes.came and not find_files_back(name, status, location, listed)
        if came and belongs_to_another(rewriter, unit, location):
            continue
        if changes and not (changes.only_gone and is_superseded(rewriter, name, status)):
            yield Suspect(name, status, changes, listed)


def _is_expiring(rewriter: UnitRewriter, location: str) -> bool:
    """Tell whether an `expire` that was killed had begun to delete an old folder, and this is what is missing there.

    Where a rename is one step, it deletes a folder elsewhere, so the folder itself is not there any more.
    """
    files = rewriter.run.table.files
    begun = comparable_path(location) in expiring_folders(rewriter.run.journal.records)
    return begun and not (files.renames_at_once(location) and files.exists(location))


def is_superseded(rewriter: UnitRewriter, name: str, status: UnitStatus) -> bool:
    """Tell whether the table no longer has any row that the run wrote: they were replaced or dropped since.

    If later runs rewrote the unit, its rows may have been replaced before each of them: INSERT OVERWRITE of a partition
    deletes the files in the folder to which it points, and those in its default folder, where old files may be.
    """
    files = rewriter.run.table.files
    if not rewriter.swap.repoints:
        return _has_replaced_all(status, list_folders(files, status.new_location))
    try:
        runs = tuple(follow_unit(rewriter, name, status))
        if any(_has_replaced_all(before, later.unit.folders) for before, later in pairwise(runs)):
            return True
        return not _is_in_effect(rewriter, runs[-1]) or _has_replaced_all(
            runs[-1], list_folders(files, runs[-1].new_location)
        )
    except VerificationError:
        return False  # the journal of a later run is not trusted, or lists no files, so the operator decides


def _is_in_effect(rewriter: UnitRewriter, status: UnitStatus) -> bool:
    """Tell whether a unit points to where a run has put its new files."""
    here = rewriter.swap.current_location(status.place)
    return here is not None and comparable_path(here) == comparable_path(status.new_location)


def _has_replaced_all(status: UnitStatus, folders: tuple[Folder, ...]) -> bool:
    """Tell whether a listing of the folder of a run's new files, if it made any, has none of them."""
    made = list(new_files(status))
    return bool(made) and len(missing_new_files(status, folders)) == len(made)


def _is_accepted(status: UnitStatus) -> bool:
    """Tell whether an operator decided that old files which are in use again are right."""
    return status.resolved is not None and status.resolved.keep == "old"
