"""Folders that moved with their table: RENAME of a managed table renames its folder, with the old files in it.

The journal contains their former paths.  The present ones are derived from the table's location in the metastore.  One
is accepted only if no other table points to it, and if either the metastore has the unit there, or files that the run
had listed are there and none is at the former path; old files that a run has moved out of the folder need no such
check.  Audit and journal then record the new paths (``relocate``, ``unit_relocated``), which are used from then on.
"""

from __future__ import annotations

from dataclasses import replace

from sparkcrypt.errors import PlanError
from sparkcrypt.ledger.audit.trust import RELOCATE
from sparkcrypt.ledger.journal.entries import UnitRelocated
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.ledger.unit import Folder, Unit, base_location, by_place, list_folders, moved_place, path_below
from sparkcrypt.paths import is_same_place
from sparkcrypt.runs.rewrite.record_change import append_audit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter


def has_moved(journal: Journal, base: str) -> bool:
    """Tell whether a run has swapped units of a table whose folder had another name then.

    Args:
        journal: the run's journal.
        base: the table's present original folder.
    """
    return any(
        status.swapped and not is_same_place(status.base, base) for status in status_of_units(journal.records).values()
    )


def settle_places(rewriter: UnitRewriter) -> None:
    """Record the present folders of a run's units if their table was renamed.

    Raises:
        RunConflictError: another driver continues the run.
        SparkcryptError: the metastore or the file system refused.
    """
    for name, status in status_of_units(rewriter.run.journal.records).items():
        settle_place(rewriter, name, status)


def settle_place(rewriter: UnitRewriter, name: str, status: UnitStatus) -> UnitStatus:
    """Record the present folders of one unit if its table was renamed; return the unit's status."""
    run = rewriter.run
    if not (run.table.target.table is not None and status.swapped) or is_same_place(status.base, run.table.target.base):
        return status
    unit = status.unit
    location = moved_place(unit.location, status.base, run.table.target.base)
    if location is None or not _is_there(rewriter, unit, status, location):
        return status
    return _write_place(rewriter, unit, status, location)


def place_now(rewriter: UnitRewriter, staged: str, place: str) -> str:
    """Return the present path of an attempt's folder, which a rename of the table may have moved.

    Args:
        rewriter: the run's rewriter of units.
        staged: the folder in which the attempt made its new files.
        place: the folder's path at the time of the attempt.
    """
    files, moved = rewriter.run.table.files, moved_place(place, base_location(staged), rewriter.run.table.target.base)
    return moved if moved is not None and not files.exists(place) and files.exists(moved) else place


def belongs_to_another(rewriter: UnitRewriter, unit: Unit, location: str) -> bool:
    """Tell whether another table now points to a folder, such as a new table with the former name of a renamed one.

    Args:
        rewriter: the run's rewriter of units.
        unit: the unit whose folder it was; that of a table without partitions still has the table's former name.
        location: the folder.
    """
    own = rewriter.run.table.target.name if unit.partition is None else unit.name
    return rewriter.run.table.in_use.look().has_other_user(location, own)


def _is_there(rewriter: UnitRewriter, unit: Unit, status: UnitStatus, location: str) -> bool:
    """Tell whether a unit's folder has moved to a location, by the metastore or by the files in it."""
    run = rewriter.run
    if unit.partition is None:
        here = rewriter.swap.same_folder and any(
            is_same_place(place, location) for place in run.table.in_use.units().values()
        )
        return here and (not run.table.files.exists(unit.location) or belongs_to_another(rewriter, unit, unit.location))
    if belongs_to_another(rewriter, unit, location):
        return False
    if not is_same_place(status.outcome.old_location, unit.location):
        return True  # the old files are elsewhere; a rollback would rename them to this location
    return not _holds(rewriter, unit, unit.location) and _holds(rewriter, unit, location)


def _holds(rewriter: UnitRewriter, unit: Unit, location: str) -> bool:
    """Tell whether a folder contains a file that the run had listed; other changes there are found by comparison."""
    listed = by_place(unit.location, unit.folders)
    try:
        there = by_place(location, list_folders(rewriter.run.table.files, location))
    except PlanError:
        return False  # the folder belongs to a table format that keeps its own list of files
    return any(place in listed and listed[place].length == file.length for place, file in there.items())


def _write_place(rewriter: UnitRewriter, unit: Unit, status: UnitStatus, location: str) -> UnitStatus:
    run, before = rewriter.run, status.outcome
    old, new = (
        location if is_same_place(place, unit.location) else place
        for place in (before.old_location, before.new_location)
    )
    run.continue_journal()
    places = {"old_location": old, "new_location": new, "location": location, "base": run.table.target.base}
    details = {"unit": unit.name, "from": unit.location, "files": len(unit.files), **places}
    head = append_audit(run, RELOCATE, "none", details, None, [])
    outcome = replace(before, old_location=old, new_location=new)
    moved = unit.relocate(location, tuple(_place_folder(folder, unit.location, location) for folder in unit.folders))
    run.journal.write(UnitRelocated(moved, run.table.target.base, outcome, head))
    run.table.trust.forget_audit()
    return status_of_units(run.journal.records)[unit.name]


def _place_folder(folder: Folder, here: str, there: str) -> Folder:
    return replace(
        folder,
        files=tuple(replace(file, path=f"{there.rstrip('/')}/{path_below(here, file.path)}") for file in folder.files),
    )
