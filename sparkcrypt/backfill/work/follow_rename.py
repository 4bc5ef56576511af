"""Folders that moved with their table: RENAME of a managed table takes its folder along, and old files with it.

The journal names them where they were.  What they are called now follows from where the metastore has the table, and is
believed only when files that the run had listed are there, none is at the old place any more, and no other table points
there; then it stands in audit and journal (``relocate``, ``unit_relocated``), and everything goes on from there.
"""

from __future__ import annotations

from dataclasses import replace

from sparkcrypt.backfill.audit.audit_index import RELOCATE
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.later_entries import UnitRelocated
from sparkcrypt.backfill.journal.unit_steps import UnitState, state_of_units
from sparkcrypt.backfill.target.record import below, by_place
from sparkcrypt.backfill.target.unit import Folder, Unit, base_location, list_folders, moved_place
from sparkcrypt.backfill.work.ledger import append_audit
from sparkcrypt.backfill.work.runner import Runner
from sparkcrypt.errors import PlanError
from sparkcrypt.paths import comparable_path


def has_moved(journal: Journal, base: str) -> bool:
    """Tell whether a run has swapped units of a table that was called otherwise then.

    Args:
        journal: of the run.
        base: the table's original folder now.
    """
    return any(
        state.swapped and not _is_same_place(state.base, base) for state in state_of_units(journal.records).values()
    )


def settle_places(runner: Runner) -> None:
    """Write down where the folders of a run's units are since their table was renamed; most often there is nothing.

    Raises:
        RunConflictError: another driver continues the run.
        SparkcryptError: the metastore or the file system refused.
    """
    for name, state in state_of_units(runner.run.journal.records).items():
        settle_place(runner, name, state)


def settle_place(runner: Runner, name: str, state: UnitState) -> UnitState:
    """Write down where the folders of one unit are; return how far it has come then."""
    run = runner.run
    if not (run.target.table is not None and state.swapped) or _is_same_place(state.base, run.target.base):
        return state
    unit = state.unit
    location = moved_place(unit.location, state.base, run.target.base)
    if location is None or not _is_there(runner, unit, state, location):
        return state
    return _write_place(runner, unit, state, location)


def place_now(runner: Runner, staged: str, place: str) -> str:
    """Return where a folder of an attempt is now, if its table was renamed since and took it along.

    Args:
        runner: of the run.
        staged: where the attempt made its new files.
        place: the folder, as it was called then.
    """
    files, moved = runner.run.files, moved_place(place, base_location(staged), runner.run.target.base)
    return moved if moved is not None and not files.exists(place) and files.exists(moved) else place


def belongs_to_another(runner: Runner, unit: Unit, location: str) -> bool:
    """Tell whether another table points to a folder by now, such as one that has the old name of a renamed table.

    Args:
        runner: of the run.
        unit: whose folder it was; that of a table without partitions has the table's first name.
        location: the folder.
    """
    own = runner.run.target.name if unit.partition is None else unit.name
    return runner.run.in_use.look().has_other_user(location, own)


def _is_there(runner: Runner, unit: Unit, state: UnitState, location: str) -> bool:
    """Tell whether a unit's folder is at another place: the metastore says so, or the files in it."""
    run = runner.run
    if unit.partition is None:
        here = runner.swap.same_folder and any(_is_same_place(place, location) for place in run.in_use.units().values())
        return here and (not run.files.exists(unit.location) or belongs_to_another(runner, unit, unit.location))
    if belongs_to_another(runner, unit, location):
        return False
    if not _is_same_place(state.outcome.old_location, unit.location):
        return True  # old files are elsewhere, and a rollback brings them here
    return not _holds(runner, unit, unit.location) and _holds(runner, unit, location)


def _holds(runner: Runner, unit: Unit, location: str) -> bool:
    """Tell whether a file that the run had listed is in a folder; what came or went there is compared as always."""
    listed = by_place(unit.location, unit.folders)
    try:
        there = by_place(location, list_folders(runner.run.files, location))
    except PlanError:
        return False  # another format keeps its own list there
    return any(place in listed and listed[place].length == file.length for place, file in there.items())


def _write_place(runner: Runner, unit: Unit, state: UnitState, location: str) -> UnitState:
    run, before = runner.run, state.outcome
    old, new = (
        location if _is_same_place(place, unit.location) else place
        for place in (before.old_location, before.new_location)
    )
    run.continue_journal()
    places = {"old_location": old, "new_location": new, "location": location, "base": run.target.base}
    told = {"unit": unit.name, "from": unit.location, "files": len(unit.files), **places}
    head = append_audit(run, RELOCATE, "none", told, None, [])
    outcome = replace(before, old_location=old, new_location=new)
    moved = unit.at(location, tuple(_place_folder(folder, unit.location, location) for folder in unit.folders))
    run.journal.write(UnitRelocated(moved, run.target.base, outcome, head))
    run.trust.forget_audit()
    return state_of_units(run.journal.records)[unit.name]


def _place_folder(folder: Folder, here: str, there: str) -> Folder:
    return replace(
        folder,
        files=tuple(replace(file, path=f"{there.rstrip('/')}/{below(here, file.path)}") for file in folder.files),
    )


def _is_same_place(place: str, other: str) -> bool:
    return comparable_path(place) == comparable_path(other)
