"""Recovery after a crash: units that were swapped stay swapped and are recorded; all others are unchanged.

The journal may lack what has happened, if it was restored or lost its end, so the metastore and the proven files decide
what is in use.  Such files are adopted if they can be proven, and reported as a problem of their unit otherwise; they
are never deleted.  A swap of which a step has happened, and whose files are not in use, was cut off, and something came
to its folder since: only a person can tell whether that adds to the old files or replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.entries import UnitListed
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus, attempts_of, status_of_units
from sparkcrypt.ledger.new_files import NewFiles, Whereabouts
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    attempt_folder,
    is_staged,
    list_folders,
    old_folder,
    path_below,
)
from sparkcrypt.paths import comparable_path, is_same_place
from sparkcrypt.runs.rewrite.adopt import adopt
from sparkcrypt.runs.rewrite.follow_rename import place_now, settle_places
from sparkcrypt.runs.rewrite.move_old import locate_old_files, move_old_files
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter


@dataclass(slots=True)
class Recovered:
    """The units of an interrupted run after its recovery.

    Attributes:
        outcomes: the units that are swapped.
        problems: the units whose new files are in use and could not be proven; they stay unchanged.
        cut_off: the attempts whose swap was cut off; the caller opens a problem for each.
    """

    outcomes: list[UnitOutcome] = field(default_factory=list)
    problems: list[FailedUnit] = field(default_factory=list)
    cut_off: list[Attempt] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """The units whose new files are in use."""
        return {outcome.name for outcome in self.outcomes} | {problem.name for problem in self.problems}

    def refuse_problems(self) -> None:
        """Raise an error if a unit has new files in use that could not be proven.

        Raises:
            VerificationError: it names the folder in use, and what to do.
        """
        for problem in self.problems:
            raise VerificationError(problem.message)


def recover(rewriter: UnitRewriter) -> Recovered:
    """Bring the units of an interrupted run to a clean state.

    If the swap of a unit was about to happen, its staged files stay until ``expire``: the interrupted driver may only
    be paused, and would point the table to them when it wakes up.

    Raises:
        RunConflictError: the lock is lost.
        SparkcryptError: the metastore or the file system refused.
    """
    settle_places(rewriter)
    done, useless = Recovered(), []
    records, now = rewriter.run.journal.records, rewriter.run.table.in_use.units()
    attempts = attempts_of(records)
    for name, last in status_of_units(records).items():
        status = last.failed_at or last
        if status.swapped:
            done.outcomes.append(_move_old_files(rewriter, status))
            continue
        if status.step == "unit_rolled_back" or not attempts.get(name):
            continue
        if status.resolved is not None and status.resolved.cut_off:
            continue  # a person has decided, and the decision was carried out
        begun = [attempt for attempt in attempts[name] if _is_begun(rewriter, attempt, now)]
        in_use = [attempt for attempt in begun if attempt.made is not None and _is_in_use(rewriter, attempt)]
        if in_use or (begun and begun[-1].made is None):  # without a list of its files, its rows are compared
            _adopt(rewriter, (in_use or begun)[-1], done)
        elif begun:
            done.cut_off.append(begun[-1])
        elif not attempts[name][-1].swapping:
            useless.append(attempts[name][-1].staged)
    for attempt in _find_unlisted(rewriter, now, attempts):
        _adopt(rewriter, attempt, done)
    rewriter.run.disposal.delete(useless)
    return done


def _move_old_files(rewriter: UnitRewriter, status: UnitStatus) -> UnitOutcome:
    outcome = status.outcome
    if status.step == "unit_moved":
        return outcome
    return move_old_files(rewriter.run, rewriter.swap, outcome, status.unit, status.staged, status.base)


def _adopt(rewriter: UnitRewriter, attempt: Attempt, done: Recovered) -> None:
    try:
        done.outcomes.append(adopt(rewriter, attempt))
    except VerificationError as error:
        done.problems.append(FailedUnit(attempt.name, type(error).__name__, str(error)))


def _is_begun(rewriter: UnitRewriter, attempt: Attempt, now: Mapping[str, str]) -> bool:
    """Tell whether a step of an attempt's swap has happened; a swap by renames that is half done is undone first."""
    swap, new = rewriter.swap, _follow(rewriter, attempt)
    here = next(iter(now.values()), "") if new.unit.partition is None else now.get(new.unit.name, "")
    if swap.repoints and is_same_place(here, attempt.staged):
        rewriter.run.disposal.restore(attempt.staged)
    if swap.same_folder and not is_same_place(here, new.unit.location):
        return False  # the table was moved
    swap.put_back(new)
    return swap.is_begun(new)


def _is_in_use(rewriter: UnitRewriter, attempt: Attempt) -> bool:
    """Tell whether an attempt's new files are proven to be in use.

    Raises:
        VerificationError: a copy of a bare folder is incomplete.
    """
    new, swap = _follow(rewriter, attempt), rewriter.swap
    where = rewriter.locate(new)
    if swap.copies and where is not Whereabouts.IN_USE and rewriter.run.table.files.data_files(attempt.staged):
        raise VerificationError(
            f"{swap.final_location(new.unit, attempt.staged)}: only a part of {attempt.staged} was moved there when "
            "the run was killed; see that nobody reads it, rename it, then run again"
        )
    return where is Whereabouts.IN_USE


def _follow(rewriter: UnitRewriter, attempt: Attempt) -> NewFiles:
    """Return an attempt's new files, with the present path of a folder that a rename of the table has moved."""
    new = attempt.new_files
    if not rewriter.swap.same_folder:
        return new
    return new.relocate(place_now(rewriter, attempt.staged, new.unit.location))


def _find_unlisted(
    rewriter: UnitRewriter, now: Mapping[str, str], attempts_by_unit: Mapping[str, list[Attempt]]
) -> Iterator[Attempt]:
    """Yield attempts that are not in the journal, for units whose folder's name shows that this run put it into use.

    The name only selects where to look: no attempt is adopted without a proof.
    """
    run, swap = rewriter.run, rewriter.swap
    if swap.same_folder:
        found = set(now) if run.table.files.exists(old_folder(run.table.target.base, run.run_id)) else set()
    elif swap.repoints:
        found = {name for name, place in now.items() if is_staged(place) and f"/{run.run_id}-" in place}
    else:
        found = set()
    staged = {comparable_path(attempt.staged) for attempts in attempts_by_unit.values() for attempt in attempts}
    unknown = {name for name in found - attempts_by_unit.keys() if comparable_path(now[name]) not in staged}
    for unit in run.table.target.units(None) if unknown else ():
        if unit.name in unknown:
            yield _guess_attempt(rewriter, unit)


def _guess_attempt(rewriter: UnitRewriter, unit: Unit) -> Attempt:
    """Reconstruct an attempt that the journal lacks, with the files now in the unit's old folder as its sources."""
    run, base = rewriter.run, rewriter.run.table.target.base
    if rewriter.swap.same_folder:
        before, staged = unit, unit.staging(base, attempt_folder(run.run_id, run.lock.token))
    else:
        before, staged = unit.relocate(f"{base}/{unit.partition_path}".rstrip("/"), ()), unit.location
    old = locate_old_files(rewriter.run, rewriter.swap, before, base)
    folders = tuple(
        Folder(folder.relative, tuple(_place_file(file, old, before.location) for file in folder.files))
        for folder in list_folders(run.table.files, old)
    )
    return Attempt(unit.name, UnitListed(before.relocate(before.location, folders), staged))


def _place_file(file: Any, here: str, there: str) -> Any:
    return type(file)(f"{there.rstrip('/')}/{path_below(here, file.path)}", file.length, file.modified_ms)
