"""Old files in reach: until the policy's grace is over, they stay where DROP PARTITION and an INSERT would find them.

Then they are renamed to where the run keeps old files, which no SQL command finds.  Until then, or permanently if a
rename is not a single step, each pass checks whether the table points to an old folder again.  If it does, old rows are
back, in clear, and a run would encrypt them in addition to the new files that were made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from urllib.parse import urlsplit

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.ledger.unit import Folder, UnitOutcome, by_place, is_staged, list_folders, old_folder, restore_unit
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.awaiting_expiry import swap_time
from sparkcrypt.runs.old_folders.changes import expired_folders
from sparkcrypt.runs.old_folders.ended_writers import writers_folder_in
from sparkcrypt.runs.rewrite.swap import move_back, move_old
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import find_foreign_in
from sparkcrypt.runs.table.in_use import Places, refuse_used
from sparkcrypt.spark.files.hadoop import HadoopFiles


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
