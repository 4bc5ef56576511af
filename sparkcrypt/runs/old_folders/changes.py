"""Changes in a unit's old folder since its run listed it: files that were added, and files that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sparkcrypt.ledger.journal.entries import RunExpired, UnitCarried
from sparkcrypt.ledger.journal.journal import Record
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus
from sparkcrypt.ledger.unit import Folder, Unit, by_place, path_below
from sparkcrypt.paths import comparable_path


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between an old folder and the files that are known to be in it.

    Attributes:
        location: the folder.
        came: files that the run neither listed nor reconciled, and that no resolution has accepted.
        gone: paths below the folder of known files that are missing or changed.
        carried: paths below the folder of files that were added earlier and were reconciled.
        holds_known: whether known files are still there, which an overwrite would have removed.
    """

    location: str
    came: tuple[Folder, ...]
    gone: tuple[str, ...]
    carried: tuple[str, ...]
    holds_known: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """The paths below the folder of the files that were added."""
        return tuple(sorted(path_below(self.location, file.path) for folder in self.came for file in folder.files))

    @property
    def only_gone(self) -> bool:
        """Whether files are missing and none were added."""
        return bool(self.gone) and not self.came

    def __bool__(self) -> bool:
        """Tell whether there are any changes."""
        return bool(self.came or self.gone)


def changes_at(unit: Unit, location: str, folders: tuple[Folder, ...], status: UnitStatus) -> Changes:
    """Compare an old folder with the files that are known to be in it.

    Args:
        unit: the unit as the run listed it.
        location: the old folder.
        folders: the present listing of the folder.
        status: the unit's status.
    """
    carried = {place for place, _ in _list_carried(status, location)}
    if _holds_old(location, status):
        held = {*_list_kept(unit, location, status), *carried}
    else:  # the old files were moved to another folder, with all other files that were here
        held = set() if status.resolved is None else set(_list_kept(unit, location, status))
    known = dict(known_files(unit, location, status))
    return replace(_compare(location, folders, known, held), carried=tuple(sorted(carried)))


def changes_at_undone(attempt: Attempt, folders: tuple[Folder, ...], status: UnitStatus) -> Changes:
    """Return the files added to the folder of an undone swap, by a writer that was planned while it was in use.

    Args:
        attempt: the attempt whose folder it is.
        folders: the present listing of the folder.
        status: the unit's present status.
    """
    known = known_of_undone(attempt, status)
    decided = {} if status.resolved is None else status.resolved.files_in("undone")
    changes = _compare(attempt.staged, folders, known, set(decided or known))
    return changes if changes.came else Changes(attempt.staged, (), (), ())  # staged files are no loss if missing


def known_of_undone(attempt: Attempt, status: UnitStatus) -> dict[str, int]:
    """Return path below the folder -> length, of the files that may be in the folder of an undone swap.

    These were staged there, were reconciled since, or were accepted by a resolution.
    """
    known = {place: file.length for place, file in by_place(attempt.staged, attempt.made or ()).items()}
    for record in status.carried:
        if comparable_path(record.source) == comparable_path(attempt.staged):
            known.update(_list_places(record))
    return known | ({} if status.resolved is None else status.resolved.files_in("undone"))


def known_files(unit: Unit, location: str, status: UnitStatus) -> Iterator[tuple[str, int]]:
    """Yield path below the folder and length of the files that may be in an old folder.

    These were listed, were reconciled since, or were accepted by a resolution.  Reconciled files are known in every
    folder, since old folders are moved with all files in them.
    """
    yield from _list_kept(unit, location, status).items()
    for record in status.carried:
        yield from _list_places(record)


def known_places(unit: Unit, status: UnitStatus) -> set[str]:
    """Return the paths, below the folder, of all files that may be in a unit's old folder, also after it was moved."""
    locations = (status.location, status.outcome.old_location)
    return {place for location in locations for place, _ in known_files(unit, location, status)}


def expired_folders(records: tuple[Record, ...]) -> set[str]:
    """Return the folders of a run that `expire` has deleted, in comparable form."""
    return {
        comparable_path(folder)
        for record in records
        if record.kind == "run_expired"
        for folder in RunExpired.from_dict(record.fields).folders
    }


def expiring_folders(records: tuple[Record, ...]) -> set[str]:
    """Return the folders of a run that `expire` has begun to delete, in comparable form."""
    return {
        comparable_path(str(folder))
        for record in records
        if record.kind == "run_expiring"
        for folder in record.fields["folders"]
    }


def _compare(location: str, folders: tuple[Folder, ...], known: Mapping[str, int], held: set[str]) -> Changes:
    """Compare a folder with the files that may be in it (``known``) and with the paths that must be (``held``)."""
    now = by_place(location, folders)
    left = {place for place, length in known.items() if place in now and now[place].length == length}
    missing = tuple(sorted(held - left))
    return Changes(location, _leave_out_known(folders, location, known), missing, (), holds_known=bool(left))


def _leave_out_known(folders: tuple[Folder, ...], location: str, known: Mapping[str, int]) -> tuple[Folder, ...]:
    """Return folders with only those of their files that are not known, or are known with another length."""
    found = (
        replace(
            folder,
            files=tuple(file for file in folder.files if known.get(path_below(location, file.path)) != file.length),
        )
        for folder in folders
    )
    return tuple(folder for folder in found if folder.files)


def _holds_old(location: str, status: UnitStatus) -> bool:
    return comparable_path(location) == comparable_path(status.outcome.old_location)


def _list_kept(unit: Unit, location: str, status: UnitStatus) -> dict[str, int]:
    """Return path -> length of the files in a folder when the run listed it, or when a problem was last resolved."""
    if status.resolved is None:
        return {place: file.length for place, file in by_place(unit.location, unit.folders).items()}
    return status.resolved.files_in("old" if _holds_old(location, status) else "original")


def _list_carried(status: UnitStatus, location: str) -> Iterator[tuple[str, int]]:
    """Yield the files that were reconciled from a folder since the last resolution."""
    for record in status.carried[status.decided_after :]:
        if comparable_path(record.source) == comparable_path(location):
            yield from _list_places(record)


def _list_places(record: UnitCarried) -> Iterator[tuple[str, int]]:
    return ((place, file.length) for place, file in by_place(record.source, record.files).items())
