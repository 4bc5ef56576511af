"""What has become of a unit's old folder since its run listed it: files that came, and files that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparkcrypt.backfill.journal import Record
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.unit_record import below, by_place
from sparkcrypt.backfill.unit_state import UnitState
from sparkcrypt.backfill.units import Folder, Unit
from sparkcrypt.bridge.context import comparable_path


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs in an old folder from what is known of it.

    Attributes:
        location: the folder.
        came: files that the run neither listed nor carried over, and that no resolution disregards.
        gone: places of files that were known and are missing or changed.
        carried: places of files that came once and were carried over.
    """

    location: str
    came: tuple[Folder, ...]
    gone: tuple[str, ...]
    carried: tuple[str, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """Places of the files that came."""
        return tuple(sorted(below(self.location, file.path) for folder in self.came for file in folder.files))

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.came or self.gone)


def changes_at(unit: Unit, location: str, folders: tuple[Folder, ...], state: UnitState) -> Changes:
    """Compare an old folder with what is known of it.

    Args:
        unit: as the run listed it.
        location: of the old folder.
        folders: what is there now.
        state: how far the unit has come.
    """
    now = by_place(location, folders)
    known = dict(known_files(unit, location, state))
    come = {place for place, file in now.items() if known.get(place) != file.length}
    carried = {place for place, _ in _carried(state, location)}
    held = known.keys() & (_kept(unit, location, state).keys() | carried) if _holds_old(location, state) else set()
    gone = tuple(sorted(place for place in held if place not in now or now[place].length != known[place]))
    came = tuple(
        replace(folder, files=tuple(file for file in folder.files if below(location, file.path) in come))
        for folder in folders
        if any(below(location, file.path) in come for file in folder.files)
    )
    return Changes(location, came, gone, tuple(sorted(carried)))


def known_files(unit: Unit, location: str, state: UnitState) -> Iterator[tuple[str, int]]:
    """Yield what may be in an old folder, (place, length): listed, carried over since, or disregarded.

    What was carried over is known wherever it is: old folders are moved, with all that is in them.
    """
    yield from _kept(unit, location, state).items()
    for record in state.carried:
        for _, files in record["files"]:
            yield from ((below(str(record["from"]), str(path)), int(length)) for path, length, _ in files)


def known_places(unit: Unit, state: UnitState) -> set[str]:
    """Return the places of everything that may be in a unit's old folder, wherever that was moved to."""
    locations = (str(state.fields["location"]), UnitOutcome.from_dict(state.fields["outcome"]).old_location)
    return {place for location in locations for place, _ in known_files(unit, location, state)}


def expired_folders(records: tuple[Record, ...]) -> set[str]:
    """Return the folders that `expire` has deleted of a run, in a form that compares."""
    return {
        comparable_path(str(folder))
        for record in records
        if record.kind == "run_expired"
        for folder in record.fields.get("folders", ())
    }


def _holds_old(location: str, state: UnitState) -> bool:
    outcome = UnitOutcome.from_dict(state.fields["outcome"])
    return comparable_path(location) == comparable_path(outcome.old_location)


def _kept(unit: Unit, location: str, state: UnitState) -> dict[str, int]:
    """Return what was in a folder when the run listed it, or when someone decided to leave it as it was then."""
    if state.resolved is None:
        return {place: file.length for place, file in by_place(unit.location, unit.folders).items()}
    role = "old" if _holds_old(location, state) else "original"
    return {str(place): int(length) for place, length in state.resolved["listing"].get(role, ())}


def _carried(state: UnitState, location: str) -> Iterator[tuple[str, int]]:
    """Yield what was carried over out of a folder since the last decision."""
    for record in state.carried[state.decided_after :]:
        if comparable_path(str(record["from"])) == comparable_path(location):
            for _, files in record["files"]:
                yield from ((below(str(record["from"]), str(path)), int(length)) for path, length, _ in files)
