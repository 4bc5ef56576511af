"""Check of swapped units while their old files exist: the new files must be in use, or have been replaced.

Each pass opens a problem for a unit whose new files are gone with nothing in their place, as after TRUNCATE, or were
never in use; `expire` keeps the old files of such a unit until a person has decided.  Nor can anybody but a person
decide on a swap that was cut off, since something came to the unit's folder before it was finished or recorded: the
rows from before are then in the old folder, and the same rows, rewritten, where they were staged; what came may add to
them (an INSERT) or replace them (an overwrite, TRUNCATE).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from sparkcrypt.errors import StorageError, VerificationError
from sparkcrypt.ledger.audit.manifest import CUT_OFF, GONE
from sparkcrypt.ledger.journal.entries import RunFinished, UnitFailed, UnitResolved
from sparkcrypt.ledger.journal.journal import Journal, has_ended
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus, attempts_of
from sparkcrypt.ledger.new_files import NewFiles, Whereabouts, missing_files, prove_in_use
from sparkcrypt.ledger.unit import by_place, list_folders, list_location, path_below
from sparkcrypt.paths import comparable_path, is_same_place
from sparkcrypt.runs.old_folders.late_commits import (
    note_resolution,
    open_problem,
    problems_of,
)
from sparkcrypt.runs.old_folders.old_folder import (
    Changes,
    OldFolder,
    list_reconciled_files,
    proven_files,
)
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.problems import Decision, Problem, Problems
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS
from sparkcrypt.runs.rewrite.recover import Recovered
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import refuse_moving
from sparkcrypt.runs.table.in_use import Places, refuse_used
from sparkcrypt.spark.files.hadoop import HadoopFiles

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """The old folders of some runs.

    Attributes:
        settled: those of units whose new files exist, or were replaced since; these old files may be deleted.
        superseded: unit -> why its old folder stays: it is in use again, or a later run has to delete it.
        lost: those that stay since they may be the only copy of their rows, each with the reason.
        in_use: the folders of the table's units, in comparable form.
        places: the locations of all tables and partitions at that time.
    """

    settled: tuple[OldFolder, ...]
    superseded: Mapping[str, str]
    lost: tuple[tuple[OldFolder, str], ...]
    in_use: frozenset[str]
    places: Places

    @cached_property
    def _by_run(self) -> Mapping[str, Sequence[OldFolder]]:
        return _by_run((old.journal.run.run_id, old) for old in self.settled)

    @cached_property
    def _lost_by_run(self) -> Mapping[str, Sequence[tuple[OldFolder, str]]]:
        return _by_run((old.journal.run.run_id, (old, why)) for old, why in self.lost)

    def of(self, journal: Journal) -> Iterator[OldFolder]:
        """Yield the settled ones of one run, in the order of its journal."""
        return iter(self._by_run.get(journal.run.run_id, ()))

    def list_refused(self, journal: Journal) -> dict[str, str]:
        """Return the units of one run whose old files stay, each with the reason."""
        return {old.name: why for old, why in self._lost_by_run.get(journal.run.run_id, ())}


def _by_run(found: Iterable[tuple[str, T]]) -> Mapping[str, Sequence[T]]:
    by_run: dict[str, list[T]] = {}
    for run_id, value in found:
        by_run.setdefault(run_id, []).append(value)
    return by_run


def standing_of(runs: PastRuns, journals: Iterable[Journal]) -> Standing:
    """Return which of the units that runs have swapped may lose their old files."""
    every = [old for journal in runs.list_readable() for old in OldFolder.list_of(journal)]
    last_with = {(old.name, comparable_path(old.location)): old.journal.run.run_id for old in every}
    made_by = {comparable_path(old.status.new_location): old for old in every}
    units = runs.table.in_use.units()
    places = runs.table.in_use.look(seconds_old=ANSWER_SECONDS)
    in_use = frozenset(map(comparable_path, units.values()))
    settled, superseded, lost = list[OldFolder](), dict[str, str](), list[tuple[OldFolder, str]]()
    for old in (old for journal in journals for old in OldFolder.list_waiting(journal)):
        later = last_with[old.name, comparable_path(old.location)]
        if comparable_path(old.location) in in_use:
            superseded[old.name] = (
                f"{old.location}, where its old files were, is in use again, so it is no old folder any more and stays"
            )
        elif later != old.journal.run.run_id:
            superseded[old.name] = f"{old.location} is the old folder of run {later} too, and goes with that run"
        else:
            try:
                found = _find_lost_of(runs, old, _locate_unit(old, units), made_by)
                why = None if found is None else found.message
            except StorageError as error:
                why = f"{old.name}: {error}; its old files in {old.location} may be the only copy, so they stay"
            if why is None:
                settled.append(old)
            else:
                lost.append((old, why))
    return Standing(tuple(settled), superseded, tuple(lost), in_use, places)


def report_lost(rewriter: UnitRewriter, problems: Problems) -> tuple[FailedUnit, ...]:
    """Open a problem for each unit of a run whose new files are gone with nothing in their place, or were never in use.

    A rollback that was killed between its two renames is undone first, if nothing came to the unit's folder since.

    Returns:
        These units, each with the problem's message.
    """
    run, failed = rewriter.run, list[FailedUnit]()
    if rewriter.swap.copies or run.journal.archived:
        return ()
    units = run.table.in_use.units()
    for old in OldFolder.list_waiting(run.journal):
        here = _locate_unit(old, units)
        if here is None:
            continue
        if rewriter.swap.same_folder and old.status.step == "unit_rolling_back":
            rewriter.swap.put_in(proven_files(old.status))
        is_there = is_same_place(here, old.status.new_location)
        try:
            lost = find_lost(run.table.files, old.name, old.status, here) if is_there else None
        except StorageError as error:
            failed.append(FailedUnit(old.name, type(error).__name__, str(error)))
            continue
        if lost is not None and lost.kind is not None:
            changes = Changes(old.location, (), lost.gone, ())
            failed.append(open_problem(rewriter, problems, old.name, changes, (lost.kind, lost.message)))
    _close_settled(rewriter, problems)
    return tuple(failed)


def _close_settled(rewriter: UnitRewriter, problems: Problems) -> None:
    """Close the problems of new files that were gone and are there again, or that a rollback has taken out of use."""
    run = rewriter.run
    statuses = run.journal.statuses()
    for problem in problems.open():
        status = statuses.get(problem.unit) if (problem.kind, problem.run_id) == (GONE, run.run_id) else None
        if status is None or (status.swapped and rewriter.locate(proven_files(status)) is not Whereabouts.IN_USE):
            continue
        reason = "its new files are there again" if status.swapped else "its old files are in use again"
        decision = Decision("both", reason)
        note_resolution(rewriter, problem, decision)
        problems.close(problem.problem, decision)


@dataclass(frozen=True, slots=True)
class Lost:
    """A unit without its new files.

    Attributes:
        kind: the kind of the problem that is opened for it; None if its folder is missing, which each survey reports.
        gone: the missing files, as paths below the unit's folder.
        message: what was found, and that the old files stay.
    """

    kind: str | None
    gone: tuple[str, ...]
    message: str


def find_lost(files: HadoopFiles, name: str, status: UnitStatus, here: str) -> Lost | None:
    """Return what became of the new files of a swapped unit, if nothing has taken their place; None if all is well.

    Args:
        files: the file system.
        name: the unit's name.
        status: its status in the run that made the files.
        here: the folder to which it points, which is that run's.
    """
    if not files.exists(here):
        drop = "drop the partition" if status.partition_path else "drop the table"
        return Lost(
            None,
            (),
            f"{name}: {here}, to which it points, is missing; its old files in {status.old_location} may be the only "
            f"copy, so they stay. Restore the folder, or copy the old files there; if its rows should be gone, {drop}; "
            "then expire",
        )
    new = proven_files(status)
    where = prove_in_use(files, new, status.new_location, here)
    if where is Whereabouts.STAGED and new.lengths:
        if status.resolved is not None and status.resolved.given_up:
            return None  # a person has decided for what is there
        return Lost(CUT_OFF, (), describe_cut_off(name, here, status.old_location, status.staged))
    made = {**new.lengths, **dict(list_reconciled_files(status.carrying[: len(status.carried_fields)]))}
    now = by_place(here, list_folders(files, here))
    lost = tuple(missing_files(made, now))
    if not lost or now.keys() - made.keys() or (status.resolved is not None and status.resolved.accepts_missing(lost)):
        return None  # all there, or other files have taken their place, or a person has decided
    which = "every file" if len(lost) == len(made) else f"{lost[0]}{f' and {len(lost) - 1:,} more' * (len(lost) > 1)}"
    return Lost(
        GONE,
        lost,
        f"{name}: {which} that the run had written to {here} is gone or changed, and nobody has written there since; "
        f"its old files in {status.old_location} stay, since they may be the only copy",
    )


def describe_cut_off(name: str, here: str, old: str, staged: str) -> str:
    """Return the message about a swap of which only a part has happened, and to whose folder something came since."""
    rewritten = "" if is_same_place(here, staged) else f", and the same rows, rewritten, in {staged}"
    return (
        f"{name}: its swap was cut off: {here} was made anew, or its files were replaced, before the swap was finished "
        f"and recorded; the table shows what is there, its former rows are in {old}{rewritten}; nothing of these is "
        "deleted"
    )


def _locate_unit(old: OldFolder, units: Mapping[str, str]) -> str | None:
    """Return a unit's present location; None if it was dropped.  A table's only unit is found whatever its name."""
    return units.get(old.name) if old.status.partition_path else next(iter(units.values()), None)


def _find_lost_of(runs: PastRuns, old: OldFolder, here: str | None, made_by: Mapping[str, OldFolder]) -> Lost | None:
    """Return what became of the files that a unit points to, if nothing has taken their place.

    A unit that was dropped needs none.  Neither does one that was moved elsewhere, or whose journal no longer lists
    what the run made.
    """
    maker = None if here is None else made_by.get(comparable_path(here))
    if here is None or (runs.table.files.exists(here) and (maker is None or maker.journal.archived)):
        return None
    return find_lost(runs.table.files, old.name, (maker or old).status, here)


def open_cut_off(rewriter: UnitRewriter, recovered: Recovered) -> Recovered:
    """Open a problem for each swap that was cut off, and put it before the other problems of the recovered units.

    Those tell to close the run, which is refused until these are decided.
    """
    problems, opened = problems_of(rewriter), []
    for attempt in recovered.cut_off:
        old, here = _name_folders(rewriter, attempt)
        message = describe_cut_off(attempt.name, here, old, attempt.staged)
        changes = Changes(old, (), (), ())
        opened.append(open_problem(rewriter, problems, attempt.name, changes, (CUT_OFF, message)))
    recovered.problems[:0] = opened
    return recovered


def resolve_cut_off(rewriter: UnitRewriter, found: Problem, decision: Decision) -> None:
    """Carry out a decision on a swap that was cut off, and end its run; a call that was killed is continued.

    Args:
        rewriter: the rewriter of the run's units.
        found: the problem.
        decision: ``old`` puts the old files back, beside the files that came since; ``new`` leaves the unit's folder as
            it is, and lets the old files expire.

    Raises:
        SourceChangedError: a writer is at work.
        VerificationError: a file is in the way, or another table uses the old folder; the decision can be given again.
    """
    run, keep, new = rewriter.run, decision.keep, _find_new_files(rewriter, found.unit)
    refuse_moving(run.table.files, new.unit)
    given_up, listing = "", {}
    if keep == "old":
        _bring_back(rewriter, new)
    elif rewriter.swap.is_begun(new):
        given_up = rewriter.swap.old_location(new.unit)
        old = by_place(given_up, list_folders(run.table.files, given_up))
        listing = {"old": [[place, file.length] for place, file in sorted(old.items())]}
    note_resolution(rewriter, found, decision, listing=listing)
    run.journal.write(UnitResolved(found.unit, found.problem, keep, listing, given_up, cut_off=True))
    if keep == "old":
        run.journal.write(UnitFailed(found.unit, f"its swap was cut off, and taken back: {decision.reason}"))
    if not has_ended(run.journal):
        run.journal.write(RunFinished("abandoned"))


def _find_new_files(rewriter: UnitRewriter, unit: str) -> NewFiles:
    """Return the new files of the unit's swap, or of its rollback, that was cut off."""
    journal = rewriter.run.journal
    status = journal.status_of(unit)
    return proven_files(status) if status.swapped else attempts_of(journal.of_unit(unit))[unit][-1].new_files


def _bring_back(rewriter: UnitRewriter, new: NewFiles) -> None:
    """Move what came to the unit's folder beside the old files, and put the old folder back into use."""
    run, swap = rewriter.run, rewriter.swap
    if not swap.is_begun(new):
        return  # a killed call had come to its end
    old, here = swap.old_location(new.unit), swap.final_location(new.unit, new.staged)
    own = run.table.target.name if new.unit.partition is None else new.unit.name
    refuse_used(run.table.in_use.look(afresh=True), own, old, "holds old files that are to be put back")
    for folder in list_folders(run.table.files, here):
        for file in folder.files:
            run.lock.check()
            target = f"{old}/{path_below(here, file.path)}"
            run.table.files.make_folder(target.rpartition("/")[0])
            run.table.files.rename(file.path, target)
    if swap.repoints:
        swap.undo(new)
    else:
        _remove_emptied(run.table.files, here)
        swap.put_back(new)


def _remove_emptied(files: HadoopFiles, folder: str) -> None:
    """Remove a folder from which all data files were moved.

    Raises:
        VerificationError: it has another file, which is named.
    """
    if not files.exists(folder):
        return
    _, beside = list_location(files, folder)
    for entry in beside:
        if entry.kind != "written":
            raise VerificationError(
                f"{folder}/{entry.path} is in the way of the old files; move it away, then give the same decision "
                "again; nothing was deleted"
            )
    files.delete_tree(folder)


def _name_folders(rewriter: UnitRewriter, attempt: Attempt) -> tuple[str, str]:
    unit, swap = attempt.listed.unit, rewriter.swap
    return swap.old_location(unit), swap.final_location(unit, attempt.staged)
