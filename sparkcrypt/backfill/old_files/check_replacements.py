"""Check of swapped units before their old files are deleted: the new files must exist, or have been replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.backfill.old_files.changes import expired_folders
from sparkcrypt.backfill.old_files.past_run import PastRuns
from sparkcrypt.backfill.old_files.reconcile import list_reconciled_files, new_files, old_locations
from sparkcrypt.backfill.target.record import by_place
from sparkcrypt.backfill.target.unit import list_folders
from sparkcrypt.errors import VerificationError
from sparkcrypt.paths import comparable_path


@dataclass(frozen=True, slots=True)
class SwappedUnit:
    """A unit that a run has swapped.

    Attributes:
        journal: the run's journal.
        name: the unit's name.
        status: the unit's status.
        in_use: the old folders that are in use again, after its old files were moved out of them.
    """

    journal: Journal
    name: str
    status: UnitStatus
    in_use: tuple[str, ...] = ()

    @property
    def old(self) -> str:
        """The folder of its old files."""
        return self.status.old_location

    @property
    def new(self) -> str:
        """The folder in which the run put its new files."""
        return self.status.new_location


@dataclass(frozen=True, slots=True)
class Standing:
    """The swapped units of some runs.

    Attributes:
        settled: the units whose new files exist, or were replaced since; their old files may be deleted.
        superseded: unit -> why its old folder stays: it is in use again, or a later run has to delete it.
    """

    settled: tuple[SwappedUnit, ...]
    superseded: Mapping[str, str]

    def of(self, journal: Journal) -> Iterator[SwappedUnit]:
        """Yield the settled units of one run, in the order of its journal."""
        return (unit for unit in self.settled if unit.journal is journal)


def standing_of(runs: PastRuns, journals: Iterable[Journal]) -> Standing:
    """Return which of the units that runs have swapped may lose their old files.

    Raises:
        VerificationError: files that a run made are missing, and nothing has replaced them, so the old files may be the
            only copy; nothing was changed.
    """
    every = [unit for journal in runs.list_readable() for unit in _list_swapped(journal)]
    last_with = {(unit.name, comparable_path(unit.old)): unit.journal.run.run_id for unit in every}
    made_by = {comparable_path(unit.new): unit for unit in every}
    units = runs.in_use.units()
    now = {comparable_path(place) for place in units.values()}
    settled: list[SwappedUnit] = []
    superseded: dict[str, str] = {}
    for unit in (unit for journal in journals for unit in _list_waiting(journal)):
        later = last_with[unit.name, comparable_path(unit.old)]
        if comparable_path(unit.old) in now:
            superseded[unit.name] = (
                f"{unit.old}, where its old files were, is in use again, so it is no old folder any more and stays"
            )
        elif later != unit.journal.run.run_id:
            superseded[unit.name] = f"{unit.old} is the old folder of run {later} too, and goes with that run"
        else:
            _refuse_lost(runs, unit, _locate_unit(unit, units), made_by)
            again = tuple(old for old in old_locations(unit.status) if comparable_path(old) in now)
            settled.append(replace(unit, in_use=again))
    return Standing(tuple(settled), superseded)


def _list_swapped(journal: Journal) -> Iterator[SwappedUnit]:
    for name, status in status_of_units(journal.records).items():
        if status.swapped:
            yield SwappedUnit(journal, name, status)


def _list_waiting(journal: Journal) -> Iterator[SwappedUnit]:
    """Yield the swapped units of a run whose old files have not expired."""
    expired = expired_folders(journal.records)
    return (unit for unit in _list_swapped(journal) if comparable_path(unit.old) not in expired)


def _locate_unit(unit: SwappedUnit, units: Mapping[str, str]) -> str | None:
    """Return the unit's present location; None if it was dropped.  A table's only unit is found whatever its name."""
    if unit.status.unit.partition is None:
        return next(iter(units.values()), None)
    return units.get(unit.name)


def _refuse_lost(runs: PastRuns, unit: SwappedUnit, here: str | None, made_by: Mapping[str, SwappedUnit]) -> None:
    """Raise an error if a unit has lost its new files; a unit that was dropped needs none.

    Raises:
        VerificationError: it names the folder.
    """
    if here is None:
        return
    if not runs.files.exists(here):
        raise VerificationError(
            f"{unit.name}: {here}, to which it points, is missing; its old files in {unit.old} may be the only copy, "
            "so they stay; nothing was deleted. Restore the folder, or point the unit to the old files with ALTER "
            "TABLE … SET LOCATION; if its rows should be gone, drop the partition; then expire"
        )
    maker = made_by.get(comparable_path(here))
    if maker is None or maker.journal.archived:
        return  # the unit was moved elsewhere, or the journal no longer lists the files that the run made
    now = {place: file.length for place, file in by_place(here, list_folders(runs.files, here)).items()}
    made_files = dict(new_files(maker.status)) | dict(
        list_reconciled_files(maker.status.carrying[: len(maker.status.carried_fields)])
    )
    lost = sorted(place for place, length in made_files.items() if now.get(place) != length)
    if lost and not now.keys() - made_files.keys():
        raise VerificationError(
            f"{unit.name}: {lost[0]}, which run {maker.journal.run.run_id} had written to {here}, is gone or changed, "
            f"and nobody has written there since; its old files in {unit.old} may be the only copy, so they stay; "
            "nothing was deleted. Restore it, or point the unit to the old files with ALTER TABLE … SET LOCATION; if "
            "its rows should be gone, drop the partition; then expire"
        )
