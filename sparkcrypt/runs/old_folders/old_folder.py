"""The folder of a unit's old files: what is known to be in it, what has changed there, who may still write to it.

Until the policy's grace is over, old files stay where DROP PARTITION and an INSERT would find them.  Then they are
renamed to where the run keeps old files, which no SQL command finds.  Until then, or permanently if a rename is not a
single step, each pass checks whether the table points to an old folder again.  If it does, old rows are back, in clear,
and a run would encrypt them in addition to the new files that were made of them.

A writer has ended when no temporary folder of one is there, and two listings agree: its commit renames one file after
another, and a compaction adds its file before it removes others; a listing in between shows neither the old state nor
the new one.  Killed writers leave their temporary folders for ever, so the wait ends after ``MOST_SECONDS``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.listing import is_writers_folder
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.journal.entries import RunExpired, UnitCarried, UnitCarrying
from sparkcrypt.ledger.journal.journal import Journal, Record, has_expired
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus, undone_attempts
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.new_files import NewFiles, missing_files
from sparkcrypt.ledger.unit import Folder, Unit, by_place, is_staged, list_folders, old_folder, path_below
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.rewrite.moved_files import move_back, move_old
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import find_foreign_in
from sparkcrypt.runs.table.in_use import Places, refuse_used
from sparkcrypt.spark.files.hadoop import HadoopFiles

APART_SECONDS = 20.0
"""The time between two listings."""
MOST_SECONDS = 600.0
"""The longest time to wait for a commit."""
LISTED_SECONDS = 5.0
"""How old what was listed of the folders above may be, where many folders are looked at."""
_CLOCKS_APART_MS = 60_000
"""The largest difference allowed for between the clocks of the driver and of the file system."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder, and why they may not be final; None if two listings agree and no writer is there."""

    folders: tuple[Folder, ...]
    at_work: str | None


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait_until_quiet(
    files: HadoopFiles, folders: Mapping[str, bool], base: str, listed: Mapping[str, tuple[Folder, ...]]
) -> dict[str, Listing]:
    """List folders repeatedly until each is quiet; all are waited for together.

    Args:
        files: the file system.
        folders: folder -> whether to wait for it; if not, it is listed once more only.
        base: the table's folder, below which writers have their temporary folders.
        listed: folder -> its files at the last listing.
    """
    before, found = dict(listed), dict[str, Listing]()
    end = time.monotonic() + MOST_SECONDS
    while len(found) < len(folders):
        pause(APART_SECONDS)
        writers = Writers(files, base, seconds_old=APART_SECONDS)
        for folder, waits in folders.items():
            if folder in found:
                continue
            at_work = writers.find(folder)
            now = list_folders(files, folder)
            if now != before[folder]:
                at_work = at_work or f"{folder}, whose files keep changing"
            if at_work is None or not waits or time.monotonic() >= end:
                found[folder] = Listing(now, at_work)
            before[folder] = now
    return found


class Writers:
    """Finds the temporary folders of writers in a folder, and in those above it up to the table's.

    Args:
        files: the file system.
        base: the table's folder, below which writers have their temporary folders.
        seconds_old: how old what was listed of the folders above may be: units of one table have these in common.
    """

    def __init__(self, files: HadoopFiles, base: str, seconds_old: float = LISTED_SECONDS) -> None:
        self._files, self._base, self._seconds_old = files, base, seconds_old
        self._above: dict[str, tuple[float, Sequence[str]]] = {}

    def find(self, folder: str) -> str | None:
        """Return a writer's temporary folder; None if there is none."""
        return next(self._list(folder), None)

    def find_earlier(self, folder: str, since_ms: int) -> str | None:
        """Return the temporary folder of a writer that may have been planned before a moment; None if there is none.

        Every job re-creates ``_temporary``, so its modification time is the start of the job.  A staging folder belongs
        to one job and changes when the job ends, so its time does not show when the job was planned.  Nor does any time
        below the folder itself: a job that writes directly to it was planned while it was still in use, whenever the
        job starts.

        Args:
            folder: the folder to which it may commit; jobs planned now do not write to it.
            since_ms: the moment, in milliseconds since the epoch.
        """
        for writing in self._list(folder):
            if not writing.endswith("/_temporary") or writing.rpartition("/")[0] == folder.rstrip("/"):
                return writing
            is_there = self._files.exists(writing)
            if is_there and self._files.status(writing).modified_ms <= since_ms + _CLOCKS_APART_MS:
                return writing
        return None

    def _list(self, folder: str) -> Iterator[str]:
        place, *above = _list_folders_up_to(folder, self._base)
        yield from _list_in(self._files, place)
        for outer in above:
            listed, now = self._above.get(outer), time.monotonic()
            if listed is None or now - listed[0] > self._seconds_old:
                listed = self._above[outer] = now, tuple(_list_in(self._files, outer))
            yield from listed[1]


def writers_folder_in(files: HadoopFiles, folder: str) -> str | None:
    """Return a writer's temporary folder directly in a folder; None if there is none."""
    return next(_list_in(files, folder), None)


def _list_in(files: HadoopFiles, place: str) -> Iterator[str]:
    if files.exists(place):
        for name in files.names(place):
            if is_writers_folder(name):
                yield f"{place}/{name}"


def _list_folders_up_to(folder: str, base: str) -> list[str]:
    """Return a folder, the folders above it within the table's folder, and the table's folder."""
    places, folder = [folder.rstrip("/")], folder.rstrip("/")
    top = comparable_path(base).rstrip("/")
    while comparable_path(folder).startswith(top + "/"):
        folder = folder.rpartition("/")[0]
        places.append(folder)
    return places if comparable_path(places[-1]) == top else [*places, base]


_Source: TypeAlias = tuple[int, bool]
"""The length of an old file, and whether it has a column in clear that is encrypted in the new files."""


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


@dataclass(frozen=True, slots=True)
class OldFolder:
    """The folder of a unit's old files after its swap; or a folder that was in use until a swap was undone.

    Attributes:
        journal: the run's journal.
        status: the unit's status by it.
        undone: the attempt that staged the folder, if its swap was undone; else None.
    """

    journal: Journal
    status: UnitStatus
    undone: Attempt | None = None

    @classmethod
    def list_of(cls, journal: Journal) -> Iterator[OldFolder]:
        """Yield the old folder of each unit that a run has swapped."""
        return (cls(journal, status) for status in journal.statuses().values() if status.swapped)

    @classmethod
    def list_waiting(cls, journal: Journal) -> Iterator[OldFolder]:
        """Yield those that have not expired."""
        expired = expired_folders(journal.records)
        return (old for old in cls.list_of(journal) if comparable_path(old.location) not in expired)

    @classmethod
    def list_undone(cls, journal: Journal) -> Iterator[OldFolder]:
        """Yield the folders of undone swaps: a writer that was planned while one was in use may commit there."""
        statuses = journal.statuses()
        return (cls(journal, statuses[name], attempt) for name, attempt in undone_attempts(journal.records, statuses))

    @property
    def name(self) -> str:
        """The unit's name."""
        return str(self.status.fields["unit"])

    @property
    def location(self) -> str:
        """The folder."""
        return self.status.outcome.old_location if self.undone is None else self.undone.staged

    @property
    def locations(self) -> tuple[str, ...]:
        """The folders in which the unit's old files are, or may appear again."""
        outcome = self.status.outcome
        places = {comparable_path(place): place for place in (outcome.old_location, self.status.location)}
        places.pop(comparable_path(outcome.new_location), None)
        return tuple(places.values())

    @property
    def out_of_reach(self) -> str:
        """Where the run keeps the unit's old files after the grace."""
        return old_folder(self.status.base, self.journal.run.run_id, str(self.status.fields["partition_path"]))

    @property
    def swap_time(self) -> str:
        """When the unit was swapped, or when its run last wrote if its record does not say that."""
        return self.status.outcome.finished or self.journal.last.time

    @property
    def age_seconds(self) -> float:
        """How long ago that was."""
        return _seconds_since(self.swap_time)

    def compare(self, location: str, folders: tuple[Folder, ...]) -> Changes:
        """Compare one of the unit's old folders with the files that are known to be in it.

        Args:
            location: the folder.
            folders: its present listing.
        """
        resolved = self.status.resolved
        if self.undone is not None:
            known = self.known_of_undone()
            decided = {} if resolved is None else resolved.files_in("undone")
            changes = _compare(location, folders, known, set(decided or known))
            return changes if changes.came else Changes(location, (), (), ())  # staged files are no loss if missing
        unit = self.status.unit
        carried = {place for place, _ in self._list_carried(location)}
        if self._holds_old(location):
            held = {*self._list_kept(unit, location), *carried}
        else:  # the old files were moved to another folder, with all other files that were here
            held = set() if resolved is None else set(self._list_kept(unit, location))
        changes = _compare(location, folders, self._list_known(unit, location), held)
        return replace(changes, carried=tuple(sorted(carried)))

    def known_places(self) -> set[str]:
        """Return the paths, below the folder, of all files that may be in it, also after it was moved.

        Reconciled files are known in every folder, since old folders are moved with all files in them.
        """
        unit, locations = self.status.unit, (self.status.location, self.status.outcome.old_location)
        return {place for location in locations for place in self._list_known(unit, location)}

    def known_of_undone(self) -> dict[str, int]:
        """Return path below the folder -> length, of the files that may be in the folder of an undone swap.

        These were staged there, were reconciled since, or were accepted by a resolution.
        """
        staged, resolved = self.location, self.status.resolved
        made = () if self.undone is None else self.undone.made or ()
        known = {place: file.length for place, file in by_place(staged, made).items()}
        for record in self.status.carried:
            if comparable_path(record.source) == comparable_path(staged):
                known.update(_list_places(record))
        return known | ({} if resolved is None else resolved.files_in("undone"))

    def find_back(self, location: str, folders: tuple[Folder, ...]) -> tuple[str, ...]:
        """Return those of the unit's old files that are in a folder with unchanged length, as paths below it."""
        unit, now = self.status.unit, by_place(location, folders)
        then = by_place(unit.location, unit.folders)
        return tuple(sorted(place for place, file in then.items() if place in now and now[place].length == file.length))

    def _holds_old(self, location: str) -> bool:
        return comparable_path(location) == comparable_path(self.status.outcome.old_location)

    def _list_kept(self, unit: Unit, location: str) -> dict[str, int]:
        """Return path -> length of the files in a folder when it was listed, or when a problem was last resolved."""
        resolved = self.status.resolved
        if resolved is None:
            return {place: file.length for place, file in by_place(unit.location, unit.folders).items()}
        return resolved.files_in("old" if self._holds_old(location) else "original")

    def _list_known(self, unit: Unit, location: str) -> dict[str, int]:
        """Return the same with all files that were reconciled."""
        known = self._list_kept(unit, location)
        return {**known, **{place: length for record in self.status.carried for place, length in _list_places(record)}}

    def _list_carried(self, location: str) -> Iterator[tuple[str, int]]:
        """Yield the files that were reconciled from a folder since the last resolution."""
        for record in self.status.carried[self.status.decided_after :]:
            if comparable_path(record.source) == comparable_path(location):
                yield from _list_places(record)


def age_seconds(journal: Journal) -> float:
    """Return how long ago a run swapped its last unit; if it has swapped none, how long ago it last wrote."""
    swapped = [old.swap_time for old in OldFolder.list_of(journal)]
    return _seconds_since(max(swapped, default=journal.last.time))


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
    expiring = (record.fields["folders"] for record in records if record.kind == "run_expiring")
    return {comparable_path(str(folder)) for folders in expiring for folder in folders}


def proven_files(status: UnitStatus) -> NewFiles:
    """Return the files that a run wrote for a unit, with the unit as it was listed."""
    return NewFiles(status.unit, status.staged, dict(new_files(status)))


def new_files(status: UnitStatus) -> Iterator[tuple[str, int]]:
    """Yield path below the unit and length in bytes of the files that a run wrote for it.

    Raises:
        VerificationError: the run is archived, so its files are not known.
    """
    for change in status.evidence.get("changes", ()):
        for file in change["targets"]:
            yield path_below(status.staged, str(file["path"])), int(file["bytes"])


def missing_new_files(status: UnitStatus, folders: tuple[Folder, ...]) -> list[str]:
    """Return the files that a run wrote for a unit and that a listing of their folder lacks, or has with other lengths.

    Raises:
        VerificationError: the run is archived, so its files are not known.
    """
    return missing_files(dict(new_files(status)), by_place(status.new_location, folders))


def list_reconciled_files(carrying: Iterable[UnitCarrying]) -> Iterator[tuple[str, int]]:
    """Yield path below the unit and length in bytes of the files that were made of late commits.

    Args:
        carrying: the records to include, of a unit's `UnitStatus.carrying`.
    """
    for record in carrying:
        for place, file in by_place(record.staged, record.made).items():
            yield place, file.length


def _compare(location: str, folders: tuple[Folder, ...], known: Mapping[str, int], held: set[str]) -> Changes:
    """Compare a folder with the files that may be in it (``known``) and with the paths that must be (``held``)."""
    now = by_place(location, folders)
    left = {place for place, length in known.items() if place in now and now[place].length == length}
    added = (
        replace(
            folder,
            files=tuple(file for file in folder.files if known.get(path_below(location, file.path)) != file.length),
        )
        for folder in folders
    )
    came = tuple(folder for folder in added if folder.files)
    return Changes(location, came, tuple(sorted(held - left)), (), holds_known=bool(left))


def _list_places(record: UnitCarried) -> Iterator[tuple[str, int]]:
    return ((place, file.length) for place, file in by_place(record.source, record.files).items())


def _seconds_since(time: str) -> float:
    return (datetime.now(timezone.utc) - datetime.fromisoformat(time)).total_seconds()


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
        plaintext_since: when the first of those in clear was replaced; None if there are none.
        as_of: the number of the last record of the table's log when they were counted.
    """

    files: int = 0
    total_bytes: int = 0
    plaintext_files: int = 0
    plaintext_bytes: int = 0
    since: str | None = None
    beyond_grace: bool = False
    plaintext_since: str | None = None
    as_of: int = 0

    def judge_age(self, grace_seconds: float) -> Awaiting:
        """Return the same files as of now, some of which may be beyond their grace since they were counted."""
        age = _seconds_since(self.since) if self.since else 0.0
        return replace(self, beyond_grace=bool(self.files) and age > grace_seconds)


def count_awaiting_expiry(log: TableLog, exists: Callable[[str], bool], grace_seconds: float) -> Awaiting:
    """Return the old files of a table that await expiry, by its journals; unreadable journals are ignored.

    Args:
        log: the table's log, for display alone.
        exists: whether a folder is there.
        grace_seconds: the time after which old files should have expired.
    """
    runs = Journal.runs(log, archived=False)  # archived runs have expired
    found = [unit for run_id in runs for unit in _find_in_run(log, run_id, exists)]
    sources = [source for unit, _ in found for source in unit]
    plain = [length for length, in_clear in sources if in_clear]
    return Awaiting(
        files=len(sources),
        total_bytes=sum(length for length, _ in sources),
        plaintext_files=len(plain),
        plaintext_bytes=sum(plain),
        since=min((when for _, when in found), default=None),
        plaintext_since=min((when for unit, when in found if any(in_clear for _, in_clear in unit)), default=None),
        as_of=log.head[0],
    ).judge_age(grace_seconds)


def _find_in_run(log: TableLog, run_id: str, exists: Callable[[str], bool]) -> list[tuple[list[_Source], str]]:
    """Return the old files of each unit of a run that still exist, and when the unit was swapped.

    The records are not authenticated, since they are only reported: a plan then needs no key of the audit.
    """
    try:
        journal = Journal.open(log, run_id)
        if has_expired(journal) or journal.run.output:
            return []
        waiting = [old for old in OldFolder.list_waiting(journal) if exists(old.location)]
        return [(_list_sources(old.status), old.swap_time) for old in waiting]
    except VerificationError:
        return []  # the journal is damaged or malformed; the next run reports it


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


def settle_move(rewriter: UnitRewriter, old: OldFolder) -> OldFolder:
    """Record a move that a killed pass had made; return the old folder as it is recorded."""
    to = old.out_of_reach
    if comparable_path(old.location) == comparable_path(to) or not rewriter.run.table.files.exists(to):
        return old
    return _note_move(rewriter, old)


def move_out_of_reach(rewriter: UnitRewriter, kept: set[str], *, grace_seconds: float) -> list[str]:
    """Rename the old folders of a run to where no SQL command brings them back, once the grace is over.

    The metastore is queried before and after; a folder that came into use meanwhile is renamed back.

    Args:
        rewriter: the run's rewriter of units.
        kept: the units to leave unchanged, since they have an open problem.
        grace_seconds: how long old files stay in place for readers in flight.

    Returns:
        A note for the report on each unit whose old files stay in reach beyond the grace.

    Raises:
        RunConflictError: the lock is lost.
        SparkcryptError: the file system refused.
    """
    if not rewriter.swap.repoints:
        return []
    files, in_use = rewriter.run.table.files, rewriter.run.table.in_use
    in_reach, moved, places = list[tuple[OldFolder, str]](), list[OldFolder](), None
    for old in OldFolder.list_waiting(rewriter.run.journal):
        if old.name in kept or old.age_seconds < grace_seconds:
            continue
        if is_staged(comparable_path(old.location)) or not files.exists(old.location):
            continue
        places = in_use.look() if places is None else places
        why = _find_obstacle(rewriter, old.location, places)
        if why is None:
            move_old(files, old.name, old.location, old.out_of_reach)
            moved.append(old)
        else:
            in_reach.append((old, why))
    if moved:
        places = in_use.look()
        for old in moved:
            why = _move_back(files, old, places)
            if why is None:
                _note_move(rewriter, old)
            else:
                in_reach.append((old, why))
    return [
        f"{old.name}: its old files stay where they were beyond the policy's grace, since {why}: DROP PARTITION, "
        "followed by an INSERT into it, would bring them back; run `sparkcrypt backfill expire`"
        for old, why in in_reach
    ]


def _move_back(files: HadoopFiles, old: OldFolder, places: Places) -> str | None:
    """Rename an old folder back if it is in use or must not be moved; return why, or None if it stays moved."""
    why = places.user_of(old.location) or _find_holder(files, old.location, old.out_of_reach)
    return why if why is not None and move_back(files, old.location, old.out_of_reach) else None


def _find_holder(files: HadoopFiles, old: str, place: str) -> str | None:
    """Return what in an old folder, now at ``place``, must not be moved; None if there is nothing of that kind."""
    writing = writers_folder_in(files, place)
    if writing is not None:
        return f"{writing} is there, so a writer may be at work"
    return find_foreign_in(files, old, place)


def take_out(rewriter: UnitRewriter, old: OldFolder, location: str) -> OldFolder:
    """Move the files of a run's source list out of a folder that is in use again; other files stay there.

    Raises:
        VerificationError: such a file is also where the run keeps old files, or another table or unit uses the folder.
        RunConflictError: the lock is lost.
    """
    run, to = rewriter.run, old.out_of_reach
    own = run.table.target.name if old.status.unit.partition is None else old.name
    refuse_used(run.table.in_use.look(afresh=True), own, location, "has old files that are to be moved out")
    for place in old.find_back(location, list_folders(run.table.files, location)):
        run.lock.check()
        target = f"{to}/{place}"
        if run.table.files.exists(target):
            raise VerificationError(
                f"{old.name}: {place} is in {location} and in {to}; look at both, and move one of them to a folder "
                "that no table reads; nothing more was changed"
            )
        run.table.files.make_folder(target.rpartition("/")[0])
        run.table.files.rename(f"{location.rstrip('/')}/{place}", target)
    return _note_move(rewriter, old)


def _find_obstacle(rewriter: UnitRewriter, old: str, places: Places) -> str | None:
    files, user = rewriter.run.table.files, places.user_of(old)
    if user is not None:
        return user
    if urlsplit(old)[:2] != urlsplit(rewriter.run.table.target.base)[:2]:
        return f"{old} is on another file system than the table"
    if not files.renames_at_once(old):
        return f"{old} is where a rename is a copy of each file"
    return _find_holder(files, old, old)


def _note_move(rewriter: UnitRewriter, old: OldFolder) -> OldFolder:
    journal = rewriter.run.continue_journal()
    moved = replace(old.status.outcome, old_location=old.out_of_reach)
    journal.append("unit_moved", unit=old.name, outcome=moved.to_dict())
    return OldFolder(journal, journal.status_of(old.name))
