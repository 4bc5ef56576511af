"""Old folders after a swap, compared with what the run had listed: what came is carried over, else a problem is open.

Carried over is what came where nothing else happened: no listed file may have vanished, in two listings apart, and no
writer may be at work, since a compaction adds before it removes, and its rows would be doubled.  What only a person can
decide stays an open problem of the table: listed files that are gone were erased, or replaced by an overwrite that had
been planned before the swap, and the table still has their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sparkcrypt.backfill.carry import (
    carry_over,
    finish_carrying,
    home_of,
    new_files,
    old_locations,
    replaced_files,
    stale_message,
)
from sparkcrypt.backfill.ledger import audited
from sparkcrypt.backfill.old_changes import Changes, changes_at, expired_folders
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.problems import BACK, WRITER_AT_WORK, Problem, Problems
from sparkcrypt.backfill.quiet import Listing, wait_until_quiet
from sparkcrypt.backfill.reach import files_back, folders_in_use, settle_move
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.schedule import FailedUnit
from sparkcrypt.backfill.swap import LocationSwap, NewFolder
from sparkcrypt.backfill.targets import CatalogTarget
from sparkcrypt.backfill.unit_record import restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import Folder, list_folders
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import RunConflictError, SourceChangedError, SparkcryptError, VerificationError


@dataclass(frozen=True, slots=True)
class Compared:
    """What was done of a run's old folders, and what is left for a person: units, each with its reason."""

    carried: int = 0
    failed: tuple[FailedUnit, ...] = ()


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A unit one of whose old folders is not as it is known; ``back``: files of it that the table reads again."""

    name: str
    state: UnitState
    changes: Changes
    listed: tuple[Folder, ...]
    back: tuple[str, ...] = ()


def compare_run(runner: Runner, units: Collection[str] | None = None) -> Compared:
    """Compare the old folders of a run's units with what it had listed, carry over what may be, and open problems.

    Args:
        runner: of the run.
        units: which; all of them by default.

    Returns:
        How many files were carried over, and the units of which something stays open; their old files must stay.

    Raises:
        RunConflictError: the lock is lost.
    """
    if isinstance(runner.swap, NewFolder):  # its source is no old folder: people go on writing to it
        return Compared()
    failed: list[FailedUnit] = []
    suspects = _suspects(runner, units, failed)
    quiet = _quiet(runner, [one for one in suspects if one.changes.came])
    carried = 0
    for one in suspects:
        try:
            carried += _decided(runner, one, quiet.get(one.changes.location), failed)
        except RunConflictError:
            raise
        except SparkcryptError as error:
            failed.append(FailedUnit(one.name, type(error).__name__, str(error)))
    return Compared(carried, tuple(failed))


def problems_of(runner: Runner) -> Problems:
    """Return the problems of the table that a runner works on."""
    run = runner.run
    return Problems(run.store, run.target.table_id, lambda: run.mac)


def suspected(runner: Runner, units: Collection[str] | None = None) -> list[tuple[str, Changes]]:
    """Return the units whose old folders are not as they are known, and how; nothing is changed."""
    if isinstance(runner.swap, NewFolder):
        return []
    return [(one.name, one.changes) for one in _suspects(runner, units, [], finish=False)]


def _suspects(
    runner: Runner, units: Collection[str] | None, failed: list[FailedUnit], *, finish: bool = True
) -> list[_Suspect]:
    run, found = runner.run, list[_Suspect]()
    expired = expired_folders(run.journal.records)
    used: set[str] | None = None
    for name, state in state_of_units(run.journal.records).items():
        if not state.swapped or _accepted(state) or (units is not None and name not in units):
            continue
        if comparable_path(_outcome(state).old_location) in expired:
            continue
        try:
            used = folders_in_use(runner) if used is None else used
            known = finish_carrying(_continued(runner), name, state) if finish and _begun(state) else state
            found.extend(_of_unit(runner, name, known, used, finish=finish))
        except RunConflictError:
            raise
        except SparkcryptError as error:
            failed.append(FailedUnit(name, type(error).__name__, str(error)))
    return found


def _of_unit(runner: Runner, name: str, state: UnitState, used: set[str], *, finish: bool) -> Iterator[_Suspect]:
    files, unit = runner.run.files, restored(name, state.fields)
    for location in old_locations(state) if isinstance(runner.swap, LocationSwap) else (_old(state),):
        listed = list_folders(files, location)
        if comparable_path(location) in used and isinstance(runner.swap, LocationSwap):
            back = files_back(name, state, location, listed)
            if back:
                yield _Suspect(name, state, Changes(location, (), (), ()), listed, back)
            continue
        changes = changes_at(unit, location, listed, state)
        if changes.gone and not listed and finish:
            moved = settle_move(runner, name, state)
            if moved is not state:
                yield from _of_unit(runner, name, moved, used, finish=finish)
                return
        if changes and not (_only_gone(changes) and _superseded(runner, name, state)):
            yield _Suspect(name, state, changes, listed)


def _quiet(runner: Runner, suspects: list[_Suspect]) -> dict[str, Listing]:
    """Wait for the writers of what came; those of a problem that is open already are not waited for again."""
    if not suspects:
        return {}
    run = runner.run
    known = {one.unit for one in problems_of(runner).open() if one.run_id == run.run_id}
    waits = {one.changes.location: one.name not in known for one in suspects}
    run.progress.step(suspects[0].name, "waiting until writers have ended")
    listed = {one.changes.location: one.listed for one in suspects}
    return wait_until_quiet(run.files, waits, run.target.base, listed)


def _decided(runner: Runner, suspect: _Suspect, quiet: Listing | None, failed: list[FailedUnit]) -> int:
    """Carry over what came to an old folder, or open a problem; return the number of files carried over."""
    name, state, changes = suspect.name, suspect.state, suspect.changes
    if suspect.back:
        failed.append(_opened(runner, name, changes, BACK, _back_message(suspect), suspect.back))
        return 0
    unit = restored(name, state.fields)
    if quiet is not None:
        changes = changes_at(unit, changes.location, quiet.folders, state)
    problem = _problem(runner, name, state, changes, quiet)
    if problem is None and changes.came:
        try:
            carry_over(_continued(runner), name, state, changes.location, changes.came)
            _settle(runner, name)
            return len(changes.places)
        except SourceChangedError:
            raise
        except VerificationError as error:
            problem = "cannot be carried over", str(error)
    if problem is not None:
        failed.append(_opened(runner, name, changes, *problem))
    return 0


def _problem(
    runner: Runner, name: str, state: UnitState, changes: Changes, quiet: Listing | None
) -> tuple[str, str] | None:
    """Return why a person must decide: in a few words and in a sentence; None where what came may be carried over."""
    location = changes.location
    came = f"{changes.places[0]}{_more(changes.places)} came to the old folder {location}" if changes.came else ""
    gone = f"{changes.gone[0]}{_more(changes.gone)}" if changes.gone else ""
    if _only_gone(changes) and _superseded(runner, name, state):
        return None
    if changes.carried and gone:
        return (
            "carried over, then removed",
            f"{name}: {', '.join(changes.carried)} had come to the old folder {location} and was carried over, and "
            f"{gone}, which was known there, is gone or changed since: a compaction may have written the same rows "
            "once more, so that the table has them twice, or they were erased" + (f"; {came}" if came else ""),
        )
    if came and gone:
        return (
            "overwritten",
            f"{name}: {came}, and {gone}, which the run had listed, is gone or changed: a stale writer overwrote the "
            "unit there, or compacted it; nobody can tell which rows should be there; nothing was changed",
        )
    if gone:
        return (
            "removed",
            f"{name}: {gone}, which the run had listed, is gone from the old folder {location}, or changed: someone "
            "erased rows there that the table still has, or deleted old files; nothing was changed",
        )
    if came and not isinstance(runner.swap, LocationSwap):
        return "came late", stale_message(name, changes.came[0].files[0].path)
    if came and quiet is not None and quiet.at_work is not None:
        return (
            WRITER_AT_WORK,
            f"{name}: {came}, and {quiet.at_work} is there, so its writer may not have ended; it is carried over by a "
            "later run when that is gone: delete it if its writer was killed",
        )
    return None


def _back_message(suspect: _Suspect) -> str:
    return (
        f"{suspect.name}: the table points to {suspect.changes.location} again, and {suspect.back[0]}"
        f"{_more(suspect.back)} there had been replaced by the run: DROP PARTITION, followed by an INSERT, ADD "
        "PARTITION or MSCK REPAIR TABLE, brought old rows back; the unit is left as it was"
    )


def _opened(
    runner: Runner, name: str, changes: Changes, kind: str, message: str, back: tuple[str, ...] = ()
) -> FailedUnit:
    """Open a problem of a table; a bare directory has none to resolve it by, and is told each time."""
    run = runner.run
    if not isinstance(run.target, CatalogTarget):
        return FailedUnit(name, "VerificationError", message)
    found = Problem(
        problem="",
        table=run.target.name,
        run_id=run.run_id,
        unit=name,
        kind=kind,
        old_location=changes.location,
        came=back or changes.places,
        gone=changes.gone,
        carried=changes.carried,
        message=message,
    )
    return problems_of(runner).add(found).failed()


def _settle(runner: Runner, name: str) -> None:
    """Close a problem that was nothing but a writer at work, once its files are carried over."""
    run, problems = runner.run, problems_of(runner)
    open_one = problems.of(run.run_id, name) if isinstance(run.target, CatalogTarget) else None
    if open_one is not None and open_one.kind == WRITER_AT_WORK:
        reason = "its writer has ended, and its files were carried over"
        note_resolution(runner, open_one, "both", reason)
        problems.close(open_one.problem, "both", reason)


def note_resolution(runner: Runner, problem: Problem, keep: str, reason: str, **more: Any) -> None:
    """Write into the audit what was decided of a problem."""
    unit = {"unit": problem.unit, "problem": problem.problem, "kind": problem.kind, "keep": keep, "reason": reason}
    facts = {"of_run": problem.run_id, "came": list(problem.came), "gone": list(problem.gone)}
    audited(runner.run, "resolve", "none", {**unit, **facts, **more}, None, [])


def _superseded(runner: Runner, name: str, state: UnitState) -> bool:
    """Tell whether nothing of what the run wrote is in the table: its rows were replaced there, or dropped, since."""
    if isinstance(runner.swap, LocationSwap):
        state = home_of(runner, name, state)
        try:
            if not runner.swap.in_effect(restored(name, state.fields), _outcome(state).new_location):
                return True
        except SourceChangedError:
            return True  # the partition was dropped
    made = list(new_files(state))
    return bool(made) and len(replaced_files(runner.run.files, state)) == len(made)


def _continued(runner: Runner) -> Runner:
    """Continue the journal of a past run under this lock, once, before something is written to it."""
    journal, token = runner.run.journal, runner.run.lock.token
    if journal.records[-1].fencing_token != token:
        journal.resume(token)
    return runner


def _accepted(state: UnitState) -> bool:
    """Tell whether someone decided that old files which are in use again are right."""
    return state.resolved is not None and state.resolved.get("keep") == "old"


def _begun(state: UnitState) -> bool:
    return len(state.carrying) > len(state.carried)


def _only_gone(changes: Changes) -> bool:
    return bool(changes.gone) and not changes.came


def _more(places: tuple[str, ...]) -> str:
    return f" and {len(places) - 1:,} more" if len(places) > 1 else ""


def _old(state: UnitState) -> str:
    return _outcome(state).old_location


def _outcome(state: UnitState) -> UnitOutcome:
    return UnitOutcome.from_dict(state.fields["outcome"])
