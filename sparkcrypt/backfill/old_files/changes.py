"""What has become of a unit's old folder since its run listed it: files that came, and files that are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sparkcrypt.backfill.journal.attempts import Attempt
from sparkcrypt.backfill.journal.journal import Record
from sparkcrypt.backfill.journal.later_entries import RunExpired, UnitCarried
from sparkcrypt.backfill.journal.unit_steps import UnitState
from sparkcrypt.backfill.target.record import below, by_place
from sparkcrypt.backfill.target.unit import Folder, Unit
from sparkcrypt.paths import comparable_path


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs in an old folder from what is known of it.

    Attributes:
        location: the folder.
        came: files that the run neither listed nor reconciled, and that no resolution disregards.
        gone: places of files that were known and are missing or changed.
        carried: places of files that came once and were reconciled.
        holds_known: files that were known are there still, which an overwrite would have removed.
    """

    location: str
    came: tuple[Folder, ...]
    gone: tuple[str, ...]
    carried: tuple[str, ...]
    holds_known: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """Places of the files that came."""
        return tuple(sorted(below(self.location, file.path) for folder in self.came for file in folder.files))

    @property
    def only_gone(self) -> bool:
        """Files are gone, and none came."""
        return bool(self.gone) and not self.came

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
    carried = {place for place, _ in _list_carried(state, location)}
    if _holds_old(location, state):
        held = {*_list_kept(unit, location, state), *carried}
    else:  # old files were moved, with all that had been there
        held = set() if state.resolved is None else set(_list_kept(unit, location, state))
    known = dict(known_files(unit, location, state))
    return replace(_compare(location, folders, known, held), carried=tuple(sorted(carried)))


def changes_at_undone(attempt: Attempt, folders: tuple[Folder, ...], state: UnitState) -> Changes:
    """Return what came to the folder of a swap that was undone: a writer that had planned before that commits there.

    Args:
        attempt: whose folder it is.
        folders: what is there now.
        state: how far the unit has come since.
    """
    known = known_of_undone(attempt, state)
    decided = {} if state.resolved is None else state.resolved.files_in("undone")
    changes = _compare(attempt.staged, folders, known, set(decided or known))
    return changes if changes.came else Changes(attempt.staged, (), (), ())  # of no use, so they may be gone


def known_of_undone(attempt: Attempt, state: UnitState) -> dict[str, int]:
    """Return place -> length of what may be in the folder of a swap that was undone.

    That is what was made there, reconciled since, or left there by a decision.
    """
    known = {place: file.length for place, file in by_place(attempt.staged, attempt.made or ()).items()}
    for record in state.carried:
        if comparable_path(record.source) == comparable_path(attempt.staged):
            known.update(_list_places(record))
    return known | ({} if state.resolved is None else state.resolved.files_in("undone"))


def known_files(unit: Unit, location: str, state: UnitState) -> Iterator[tuple[str, int]]:
    """Yield what may be in an old folder, (place, length): listed, reconciled since, or disregarded.

    What was reconciled is known wherever it is: old folders are moved, with all that is in them.
    """
    yield from _list_kept(unit, location, state).items()
    for record in state.carried:
        yield from _list_places(record)


def known_places(unit: Unit, state: UnitState) -> set[str]:
    """Return the places of everything that may be in a unit's old folder, wherever that was moved to."""
    locations = (state.location, state.outcome.old_location)
    return {place for location in locations for place, _ in known_files(unit, location, state)}


def expired_folders(records: tuple[Record, ...]) -> set[str]:
    """Return the folders that `expire` has deleted of a run, in a comparable form."""
    return {
        comparable_path(folder)
        for record in records
        if record.kind == "run_expired"
        for folder in RunExpired.from_dict(record.fields).folders
    }


def _compare(location: str, folders: tuple[Folder, ...], known: Mapping[str, int], held: set[str]) -> Changes:
    """Compare a folder with what may be in it, and with the places of what must be."""
    now = by_place(location, folders)
    left = {place for place, length in known.items() if place in now and now[place].length == length}
    gone = tuple(sorted(held - left))
    return Changes(location, _less(folders, location, known), gone, (), holds_known=bool(left))


def _less(folders: tuple[Folder, ...], location: str, known: Mapping[str, int]) -> tuple[Folder, ...]:
    """Return folders with those of their files that are not known, or not with their length."""
    found = (
        replace(
            folder, files=tuple(file for file in folder.files if known.get(below(location, file.path)) != file.length)
        )
        for folder in folders
    )
    return tuple(folder for folder in found if folder.files)


def _holds_old(location: str, state: UnitState) -> bool:
    return comparable_path(location) == comparable_path(state.outcome.old_location)


def _list_kept(unit: Unit, location: str, state: UnitState) -> dict[str, int]:
    """Return what was in a folder when the run listed it, or when someone decided to leave it as it was then."""
    if state.resolved is None:
        return {place: file.length for place, file in by_place(unit.location, unit.folders).items()}
    return state.resolved.files_in("old" if _holds_old(location, state) else "original")


def _list_carried(state: UnitState, location: str) -> Iterator[tuple[str, int]]:
    """Yield what was reconciled from a folder since the last decision."""
    for record in state.carried[state.decided_after :]:
        if comparable_path(record.source) == comparable_path(location):
            yield from _list_places(record)


def _list_places(record: UnitCarried) -> Iterator[tuple[str, int]]:
    return ((place, file.length) for place, file in by_place(record.source, record.files).items())
