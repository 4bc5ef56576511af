"""Deletion of one run's folders for `expire`: each is set aside and checked again before it is deleted and recorded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.entries import RunExpiring
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import UnitStatus, status_of_units, undone_attempts
from sparkcrypt.ledger.unit import by_place, list_folders, old_folder, restore_unit, staging_folder
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.awaiting_expiry import swap_time
from sparkcrypt.runs.old_folders.changes import known_of_undone, known_places
from sparkcrypt.runs.old_folders.ended_writers import writers_folder_in
from sparkcrypt.runs.old_folders.expire_refusals import may_commit, refuse_earlier_writer
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.reconcile import new_files
from sparkcrypt.runs.table.disposal import find_foreign_in
from sparkcrypt.spark.files.hadoop import HadoopFiles


@dataclass(slots=True)
class Waste:
    """Folders of one run that may be deleted.

    Attributes:
        old: folder of old files -> name and status of its unit.
        abandoned: folders that failed attempts left.
        refused: the units whose old files stay.
    """

    old: dict[str, tuple[str, UnitStatus]] = field(default_factory=dict)
    abandoned: list[str] = field(default_factory=list)
    refused: tuple[str, ...] = ()

    @property
    def folders(self) -> list[str]:
        """All folders, each once."""
        return list(dict.fromkeys([*self.old, *self.abandoned]))


def leave_held(files: HadoopFiles, waste: Waste) -> dict[str, str]:
    """Take out of the waste what has anything beside its data that is no run's; the folders of such a unit all stay.

    Returns:
        Unit, or folder of a failed attempt -> why its files stay.
    """
    held = {folder: why for folder in waste.folders if (why := find_foreign_in(files, folder, folder)) is not None}
    units = {waste.old[folder][0]: why for folder, why in held.items() if folder in waste.old}
    attempts = {folder: why for folder, why in held.items() if folder not in waste.old}
    waste.old = {folder: found for folder, found in waste.old.items() if found[0] not in units}
    waste.abandoned = [folder for folder in waste.abandoned if folder not in attempts]
    waste.refused = tuple(sorted({*waste.refused, *units}))
    return units | attempts


def dispose(runs: PastRuns, journal: Journal, waste: Waste) -> dict[str, str]:
    """Delete the folders that may go; a folder to which files were added since its last listing is put back.

    Returns:
        Unit -> what to do, of the units whose old folder a writer re-created meanwhile; later calls check them again.

    Raises:
        VerificationError: a writer has added files to a folder or may do so, or a table points to a folder again.
    """
    journal.resume(runs.lock.token)
    run_id = journal.run.run_id
    bases = {
        runs.table.target.base,
        *(status.base for status in status_of_units(journal.records).values() if status.swapped),
    }

    def inspect(folder: str, place: str) -> None:
        name, status = waste.old[folder]
        _refuse_new(runs.table.files, name, status, folder, place)
        _refuse_writer(runs, journal, name, status, folder, place)

    statuses = status_of_units(journal.records)
    undone = {
        attempt.staged: (name, known_of_undone(attempt, statuses[name]))
        for name, attempt in undone_attempts(journal.records, statuses)
    }

    def inspect_undone(folder: str, place: str) -> None:
        if folder in undone:
            _refuse_unknown(runs.table.files, *undone[folder], folder, place)

    disposal = runs.disposal(run_id)
    journal.write(RunExpiring(tuple(waste.folders)))
    used = replace(disposal, asks_all=True).delete(waste.old, inspect=inspect)
    used |= disposal.delete([folder for folder in waste.abandoned if folder not in waste.old], inspect=inspect_undone)
    for folder, user in used.items():
        raise VerificationError(
            f"{folder}: {user}, since the last look, so it stays; run again, which leaves its unit as it is"
        )
    anew = {
        folder: name
        for folder, (name, status) in waste.old.items()
        if status.swapped and runs.table.files.exists(folder)
    }
    units_left = sorted({*waste.refused, *anew.values()})
    fields = {"units_left": units_left} if units_left else {}
    journal.append("run_expired", folders=[folder for folder in waste.folders if folder not in anew], **fields)
    for base in sorted(bases):
        for folder in (f"{staging_folder(base)}/trash-{run_id}", old_folder(base, run_id)):
            runs.table.files.delete_empty(folder)
    return {
        name: f"{runs.table.target.name}: {name}: a writer that was planned before the swap made {folder} anew while "
        "its old files were deleted; run again when it has ended, and decide what it wrote there"
        for folder, name in anew.items()
    }


def _refuse_writer(runs: PastRuns, journal: Journal, name: str, status: UnitStatus, folder: str, place: str) -> None:
    """Raise an error if a writer is at work in a folder that was set aside, or at its former path.

    Raises:
        VerificationError: it names the writer's folder.
    """
    writing = writers_folder_in(runs.table.files, place)
    if writing is not None:
        writing = f"{folder}/{writing.rpartition('/')[2]}"
        raise VerificationError(f"{runs.table.target.name}: {name}: {may_commit(writing, folder)}; it is where it was")
    location = restore_unit(name, status.fields).location
    if status.swapped and comparable_path(location) != comparable_path(status.new_location):
        refuse_earlier_writer(runs, name, location, swap_time(journal, status))


def _refuse_new(files: HadoopFiles, name: str, status: UnitStatus, folder: str, place: str) -> None:
    unit = restore_unit(name, status.fields)
    known: Collection[str] = {place for place, _ in new_files(status)}
    if status.swapped:
        known = known_places(unit, status)
    elif status.resolved is not None and status.resolved.given_up:
        known = status.resolved.files_in("old")
    _refuse_unknown(files, name, known, folder, place)


def _refuse_unknown(files: HadoopFiles, name: str, known: Collection[str], folder: str, place: str) -> None:
    unknown = sorted(by_place(place, list_folders(files, place)).keys() - set(known))
    if unknown:
        raise VerificationError(
            f"{name}: {unknown[0]} came to {folder} while that was about to be deleted, so someone writes there; the "
            "folder is where it was, run again"
        )
