"""What became of the units that runs have swapped: before old files go, the new ones must be seen to be there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sparkcrypt.backfill.carry import new_files, old_locations
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.past_run import PastRuns
from sparkcrypt.backfill.unit_record import below, by_place, restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import list_folders
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import VerificationError


@dataclass(frozen=True, slots=True)
class SwappedUnit:
    """A unit that a run has swapped, and whose old files may go.

    Attributes:
        journal: of the run.
        name: of the unit.
        state: how far it has come.
        in_use: those of its old folders that are in use again, though its old files were moved out of them.
    """

    journal: Journal
    name: str
    state: UnitState
    in_use: tuple[str, ...] = ()

    @property
    def old(self) -> str:
        """Where its old files are."""
        return str(self.state.fields["outcome"]["old_location"])

    @property
    def new(self) -> str:
        """Where the run has put its new files."""
        return str(self.state.fields["outcome"]["new_location"])


@dataclass(frozen=True, slots=True)
class Standing:
    """The swapped units of some runs.

    Attributes:
        settled: their new files are there, or were replaced since: the old ones may go.
        superseded: their old folder is in use again, or is a later run's to dispose of: unit -> why it stays.
    """

    settled: tuple[SwappedUnit, ...]
    superseded: Mapping[str, str]

    def of(self, journal: Journal) -> Iterator[SwappedUnit]:
        """Yield the settled units of one run, as its journal has them."""
        return (one for one in self.settled if one.journal is journal)


def standing_of(runs: PastRuns, journals: Iterable[Journal]) -> Standing:
    """Tell what became of the units that runs have swapped.

    Raises:
        VerificationError: files that a run made are gone, and nothing has replaced them, so that the old ones may be
            the only copy; nothing was changed.
    """
    every = [one for journal in runs.readable() for one in _swapped(journal)]
    last_with = {(one.name, comparable_path(one.old)): one.journal.run.run_id for one in every}
    made_by = {comparable_path(one.new): one for one in every}
    units = runs.in_use.units()
    now = {comparable_path(place) for place in units.values()}
    settled: list[SwappedUnit] = []
    superseded: dict[str, str] = {}
    for one in (unit for journal in journals for unit in _swapped(journal)):
        later = last_with[one.name, comparable_path(one.old)]
        if comparable_path(one.old) in now:
            superseded[one.name] = (
                f"{one.old}, where its old files were, is in use again, so it is no old folder any more and stays"
            )
        elif later != one.journal.run.run_id:
            superseded[one.name] = f"{one.old} is the old folder of run {later} too, and goes with that run"
        else:
            _refuse_lost(runs, one, _location(one, units), made_by)
            again = tuple(old for old in old_locations(one.state) if comparable_path(old) in now)
            settled.append(replace(one, in_use=again))
    return Standing(tuple(settled), superseded)


def _swapped(journal: Journal) -> Iterator[SwappedUnit]:
    for name, state in state_of_units(journal.records).items():
        if state.swapped:
            yield SwappedUnit(journal, name, state)


def _carried_over(state: UnitState) -> Iterator[tuple[str, int]]:
    """Yield what became of a stale writer's files: path below the unit, length in bytes."""
    for record in state.carrying[: len(state.carried)]:
        for _, files in record["made"]:
            for path, length, _ in files:
                yield below(str(record["staged"]), str(path)), int(length)


def _location(one: SwappedUnit, units: Mapping[str, str]) -> str | None:
    """Return where the unit is now; None where it was dropped.  A table that was renamed has another name."""
    if restored(one.name, one.state.fields).partition is None:
        return next(iter(units.values()), None)
    return units.get(one.name)


def _refuse_lost(runs: PastRuns, one: SwappedUnit, here: str | None, made_by: Mapping[str, SwappedUnit]) -> None:
    """Refuse to dispose of old files whose unit has lost the new ones; one that was dropped needs none.

    Raises:
        VerificationError: it names the folder.
    """
    if here is None:
        return
    if not runs.files.exists(here):
        raise VerificationError(
            f"{one.name}: {here}, to which it points, is missing; its old files in {one.old} may be the only copy, so "
            "they stay; nothing was deleted. Restore the folder, or point the unit to the old files with ALTER TABLE … "
            "SET LOCATION; if its rows should be gone, drop the partition; then expire"
        )
    maker = made_by.get(comparable_path(here))
    if maker is None or maker.journal.archived:
        return  # somebody has put it elsewhere, or nobody knows any more which files that run made
    now = {place: file.length for place, file in by_place(here, list_folders(runs.files, here)).items()}
    made = dict(new_files(maker.state)) | dict(_carried_over(maker.state))
    lost = sorted(place for place, length in made.items() if now.get(place) != length)
    if lost and not now.keys() - made.keys():
        raise VerificationError(
            f"{one.name}: {lost[0]}, which run {maker.journal.run.run_id} had written to {here}, is gone or changed, "
            f"and nobody has written there since; its old files in {one.old} may be the only copy, so they stay; "
            "nothing was deleted. Restore it, or point the unit to the old files with ALTER TABLE … SET LOCATION; if "
            "its rows should be gone, drop the partition; then expire"
        )
