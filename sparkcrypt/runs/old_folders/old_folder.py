"""The folder of a unit's old files: what is known to be in it, what has changed there, and since when it awaits expiry.

Until the policy's grace is over, old files stay where DROP PARTITION and an INSERT would find them.  Then they are
renamed to where the run keeps old files, which no SQL command finds.  Until then, or permanently if a rename is not a
single step, each pass checks whether the table points to an old folder again.  If it does, old rows are back, in clear,
and a run would encrypt them in addition to the new files that were made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from sparkcrypt.errors import VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.journal.entries import RunExpired, UnitCarried
from sparkcrypt.ledger.journal.journal import Journal, Record
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus, has_expired, status_of_units
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    by_place,
    is_staged,
    list_folders,
    old_folder,
    path_below,
    restore_unit,
)
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.ended_writers import writers_folder_in
from sparkcrypt.runs.rewrite.swap import move_back, move_old
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import find_foreign_in
from sparkcrypt.runs.table.in_use import Places, refuse_used
from sparkcrypt.spark.files.hadoop import HadoopFiles


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


_Source: TypeAlias = tuple[int, bool]
"""The length of an old file, and whether it has a column in clear that is encrypted in the new files."""


@dataclass(frozen=True, slots=True)
class Awaiting(JsonObject, json_names={"total_bytes": "bytes"}):
    """Old files of a table that await `expire`.

    Attributes:
        files: their number.
        total_bytes: their length in bytes.
        plaintext_files: the number of those with a column in clear that is encrypted now, judged by how many keys old
            and new files have.
        plaintext_bytes: the length of those in bytes.
        since: when the first of them was replaced (ISO 8601, UTC); None if there are none.
        beyond_grace: whether it was replaced longer ago than the policy's grace.
    """

    files: int = 0
    total_bytes: int = 0
    plaintext_files: int = 0
    plaintext_bytes: int = 0
    since: str | None = None
    beyond_grace: bool = False


def count_awaiting_expiry(store: StateStore, table_id: str, files: HadoopFiles, grace_seconds: float) -> Awaiting:
    """Return the old files of a table that await expiry, by its journals; unreadable journals are ignored.

    Args:
        store: the state directory.
        table_id: the id of the table.
        files: the file system.
        grace_seconds: the time after which old files should have expired.
    """
    runs = Journal.runs(store, table_id, archived=False)  # archived runs have expired
    found = [unit for run_id in runs for unit in _find_in_run(store, table_id, run_id, files)]
    since = min((when for _, when in found), default=None)
    sources = [source for unit, _ in found for source in unit]
    plain = [length for length, in_clear in sources if in_clear]
    age = (datetime.now(timezone.utc) - datetime.fromisoformat(since)).total_seconds() if since else 0.0
    return Awaiting(
        files=len(sources),
        total_bytes=sum(length for length, _ in sources),
        plaintext_files=len(plain),
        plaintext_bytes=sum(plain),
        since=since,
        beyond_grace=bool(sources) and age > grace_seconds,
    )


def swap_time(journal: Journal, status: UnitStatus) -> str:
    """Return when a unit was swapped, or when its run last wrote if its record does not say that."""
    return status.outcome.finished or journal.records[-1].time


def age_seconds(journal: Journal) -> float:
    """Return how long ago a run swapped its last unit; if it has swapped none, how long ago it last wrote."""
    swapped = [swap_time(journal, status) for status in status_of_units(journal.records).values() if status.swapped]
    then = datetime.fromisoformat(max(swapped, default=journal.records[-1].time))
    return (datetime.now(timezone.utc) - then).total_seconds()


def _find_in_run(store: StateStore, table_id: str, run_id: str, files: HadoopFiles) -> list[tuple[list[_Source], str]]:
    """Return the old files of each unit of a run that still exist, and when the unit was swapped.

    The records are not authenticated, since they are only reported: a plan then needs no key of the audit.
    """
    try:
        journal = Journal.open(store, table_id, run_id)
        return [] if has_expired(journal) else list(_find_waiting(journal, files))
    except VerificationError:
        return []  # the journal is damaged or malformed; the next run reports it


def _find_waiting(journal: Journal, files: HadoopFiles) -> Iterator[tuple[list[_Source], str]]:
    expired = expired_folders(journal.records)
    for status in status_of_units(journal.records).values():
        if status.swapped and not journal.run.output:
            old = status.outcome.old_location
            if comparable_path(old) not in expired and files.exists(old):
                yield _list_sources(status), swap_time(journal, status)


def _list_sources(status: UnitStatus) -> list[_Source]:
    """Return the old files of a unit.

    Raises:
        VerificationError: the record lists them in a form that no release writes.
    """
    try:
        changes = status.evidence.get("changes", ())
        summaries = [int(entry.length) for entry in status.unit.beside]
        if not changes:
            return [(length, True) for length in (*(int(file.length) for file in status.unit.files), *summaries)]
        encrypts = any(target.get("key_ids") for change in changes for target in change["targets"])
        return [
            *(source for change in changes for source in _list_of_change(change)),
            *((length, encrypts) for length in summaries),
        ]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise VerificationError(
            f"unit {status.fields.get('unit')}: its files are not listed as a release does; restore the state directory"
        ) from error


def _list_of_change(change: Mapping[str, Any]) -> Iterator[_Source]:
    keys = len({key for target in change["targets"] for key in target.get("key_ids", ())})
    for source in change["sources"]:
        yield int(source["bytes"]), len(source.get("key_ids", ())) < max(keys, 1)


@dataclass(frozen=True, slots=True)
class InReach:
    """A unit whose old files stay where they were beyond the grace, and the reason."""

    unit: str
    why: str

    @property
    def note(self) -> str:
        """The note for the report."""
        return (
            f"{self.unit}: its old files stay where they were beyond the policy's grace, since {self.why}: DROP "
            "PARTITION, followed by an INSERT into it, would bring them back; run `sparkcrypt backfill expire`"
        )


def folders_in_use(rewriter: UnitRewriter) -> set[str]:
    """Return the present folders of the table's units, in comparable form."""
    return {comparable_path(place) for place in rewriter.run.table.in_use.units().values()}


def find_files_back(name: str, status: UnitStatus, location: str, folders: tuple[Folder, ...]) -> tuple[str, ...]:
    """Return those files of a run's source list that are in a folder with unchanged length, as paths below it."""
    unit = restore_unit(name, status.fields)
    now = by_place(location, folders)
    then = by_place(unit.location, unit.folders)
    return tuple(sorted(place for place, file in then.items() if place in now and now[place].length == file.length))


def settle_move(rewriter: UnitRewriter, name: str, status: UnitStatus) -> UnitStatus:
    """Record a move that a killed pass had made; return the unit's status."""
    to, outcome = _place_of(rewriter, status), status.outcome
    if comparable_path(outcome.old_location) == comparable_path(to) or not rewriter.run.table.files.exists(to):
        return status
    return _note_move(rewriter, name, outcome, to)


def move_out_of_reach(rewriter: UnitRewriter, kept: set[str], *, grace_seconds: float) -> list[InReach]:
    """Rename the old folders of a run to where no SQL command brings them back, once the grace is over.

    The metastore is queried before and after; a folder that came into use meanwhile is renamed back.

    Args:
        rewriter: the run's rewriter of units.
        kept: the units to leave unchanged, since they have an open problem.
        grace_seconds: how long old files stay in place for readers in flight.

    Returns:
        The units whose old files stay in reach beyond the grace.

    Raises:
        RunConflictError: the lock is lost.
        SparkcryptError: the file system refused.
    """
    if not rewriter.swap.repoints:
        return []
    run, found = rewriter.run, list[InReach]()
    expired = expired_folders(run.journal.records)
    places: Places | None = None
    moved = dict[str, UnitStatus]()
    for name, status in status_of_units(run.journal.records).items():
        if not status.swapped or name in kept or _age_seconds(run.journal, status) < grace_seconds:
            continue
        old = comparable_path(status.old_location)
        if is_staged(old) or old in expired or not run.table.files.exists(status.old_location):
            continue
        places = run.table.in_use.look() if places is None else places
        why = _find_obstacle(rewriter, status.old_location, places)
        if why is None:
            move_old(run.table.files, name, status.old_location, _place_of(rewriter, status))
            moved[name] = status
        else:
            found.append(InReach(name, why))
    return [*found, *_settle_moves(rewriter, moved)] if moved else found


def _settle_moves(rewriter: UnitRewriter, moved: Mapping[str, UnitStatus]) -> Iterator[InReach]:
    """Record the moves of units; yield those that are renamed back, since their folder came into use."""
    places = rewriter.run.table.in_use.look()
    for name, status in moved.items():
        why = _move_back(rewriter, status.old_location, _place_of(rewriter, status), places)
        if why is None:
            _note_move(rewriter, name, status.outcome, _place_of(rewriter, status))
        else:
            yield InReach(name, why)


def _move_back(rewriter: UnitRewriter, old: str, to: str, places: Places) -> str | None:
    """Rename an old folder back if it is in use or must not be moved; return why, or None if it stays moved."""
    files = rewriter.run.table.files
    why = places.user_of(old) or _find_holder(files, old, to)
    return why if why is not None and move_back(files, old, to) else None


def _find_holder(files: HadoopFiles, old: str, place: str) -> str | None:
    """Return what in an old folder, now at ``place``, must not be moved; None if there is nothing of that kind."""
    writing = writers_folder_in(files, place)
    if writing is not None:
        return f"{writing} is there, so a writer may be at work"
    return find_foreign_in(files, old, place)


def take_out(rewriter: UnitRewriter, name: str, status: UnitStatus, location: str) -> UnitStatus:
    """Move the files of a run's source list out of a folder that is in use again; other files stay there.

    Raises:
        VerificationError: such a file is also where the run keeps old files, or another table or unit uses the folder.
        RunConflictError: the lock is lost.
    """
    run, to, outcome = rewriter.run, _place_of(rewriter, status), status.outcome
    own = run.table.target.name if status.unit.partition is None else name
    refuse_used(run.table.in_use.look(afresh=True), own, location, "has old files that are to be moved out")
    for place in find_files_back(name, status, location, list_folders(run.table.files, location)):
        run.lock.check()
        target = f"{to}/{place}"
        if run.table.files.exists(target):
            raise VerificationError(
                f"{name}: {place} is in {location} and in {to}; look at both, and move one of them to a folder that no "
                "table reads; nothing more was changed"
            )
        run.table.files.make_folder(target.rpartition("/")[0])
        run.table.files.rename(f"{location.rstrip('/')}/{place}", target)
    return _note_move(rewriter, name, outcome, to)


def _find_obstacle(rewriter: UnitRewriter, old: str, places: Places) -> str | None:
    files, user = rewriter.run.table.files, places.user_of(old)
    if user is not None:
        return user
    if urlsplit(old)[:2] != urlsplit(rewriter.run.table.target.base)[:2]:
        return f"{old} is on another file system than the table"
    if not files.renames_at_once(old):
        return f"{old} is where a rename is a copy of each file"
    return _find_holder(files, old, old)


def _note_move(rewriter: UnitRewriter, name: str, outcome: UnitOutcome, to: str) -> UnitStatus:
    journal = rewriter.run.continue_journal()
    journal.append("unit_moved", unit=name, outcome=replace(outcome, old_location=to).to_dict())
    return status_of_units(journal.records)[name]


def _place_of(rewriter: UnitRewriter, status: UnitStatus) -> str:
    return old_folder(status.base, rewriter.run.run_id, str(status.fields["partition_path"]))


def _age_seconds(journal: Journal, status: UnitStatus) -> float:
    then = datetime.fromisoformat(swap_time(journal, status))
    return (datetime.now(timezone.utc) - then).total_seconds()
