"""Recovery after a crash: units that were swapped stay swapped and are recorded; all others are unchanged.

The journal may lack what has happened, if it was restored or lost its end, so the metastore and the proven files decide
what is in use.  Such files are adopted if they can be proven, and reported as a problem of their unit otherwise; they
are never deleted.  A swap of which a step has happened, and whose files are not in use, was cut off, and something came
to its folder since: only a person can tell whether that adds to the old files or replaces them.

Adoption records the swap of new files that are in use although the journal lacks it, with a proof of them.  A
state directory that was restored from a copy, or a journal that lost its end, may lack swaps that the metastore has.
The files to which a table points are therefore never deleted.  Unless the journal has an authentic proof of them, they
are compared with the source files that were listed, file by file if their names match, else by all rows.  Then they
are recorded as swapped.

Folders that moved with their table: RENAME of a managed table renames its folder, with the old files in it.  The
journal contains their former paths.  The present ones are derived from the table's location in the metastore.  One is
accepted only if no other table points to it, and if either the metastore has the unit there, or files that the run had
listed are there and none is at the former path; old files that a run has moved out of the folder need no such check.
Audit and journal then record the new paths (``relocate``, ``unit_relocated``), which are used from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkcrypt.errors import PlanError, RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.audit.evidence import FileEvidence, evidence_of, files_of
from sparkcrypt.ledger.audit.trust import RELOCATE
from sparkcrypt.ledger.journal.entries import Proven, UnitListed, UnitRelocated, UnitStaged, UnitSwapping, UnitVerified
from sparkcrypt.ledger.journal.journal import Journal, Record
from sparkcrypt.ledger.journal.unit_status import Attempt, UnitStatus, attempts_of
from sparkcrypt.ledger.new_files import NewFiles, Whereabouts
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    attempt_folder,
    base_location,
    by_place,
    is_staged,
    list_folders,
    moved_place,
    old_folder,
    path_below,
)
from sparkcrypt.paths import comparable_path, is_same_place
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS, append_audit, outcome_of, record_swaps
from sparkcrypt.runs.rewrite.moved_files import locate_old_files, move_old_files
from sparkcrypt.runs.rewrite.same_content import compare_content
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error


def has_moved(journal: Journal, base: str) -> bool:
    """Tell whether a run has swapped units of a table whose folder had another name then.

    Args:
        journal: the run's journal.
        base: the table's present original folder.
    """
    return any(status.swapped and not is_same_place(status.base, base) for status in journal.statuses().values())


def settle_places(rewriter: UnitRewriter) -> None:
    """Record the present folders of a run's units if their table was renamed.

    Raises:
        RunConflictError: another driver continues the run.
        SparkcryptError: the metastore or the file system refused.
    """
    for name, status in rewriter.run.journal.statuses().items():
        settle_place(rewriter, name, status)


def settle_place(rewriter: UnitRewriter, name: str, status: UnitStatus) -> UnitStatus:
    """Record the present folders of one unit if its table was renamed; return the unit's status."""
    run = rewriter.run
    if not (run.table.target.table is not None and status.swapped) or is_same_place(status.base, run.table.target.base):
        return status
    unit = status.unit
    location = moved_place(unit.location, status.base, run.table.target.base)
    if location is None or not _is_there(rewriter, unit, status, location):
        return status
    return _write_place(rewriter, unit, status, location)


def place_now(rewriter: UnitRewriter, staged: str, place: str) -> str:
    """Return the present path of an attempt's folder, which a rename of the table may have moved.

    Args:
        rewriter: the run's rewriter of units.
        staged: the folder in which the attempt made its new files.
        place: the folder's path at the time of the attempt.
    """
    files, moved = rewriter.run.table.files, moved_place(place, base_location(staged), rewriter.run.table.target.base)
    return moved if moved is not None and not files.exists(place) and files.exists(moved) else place


def belongs_to_another(rewriter: UnitRewriter, unit: Unit, location: str) -> bool:
    """Tell whether another table now points to a folder, such as a new table with the former name of a renamed one.

    Args:
        rewriter: the run's rewriter of units.
        unit: the unit whose folder it was; that of a table without partitions still has the table's former name.
        location: the folder.
    """
    own = rewriter.run.table.target.name if unit.partition is None else unit.name
    return rewriter.run.table.in_use.look(seconds_old=ANSWER_SECONDS).has_other_user(location, own)


def _is_there(rewriter: UnitRewriter, unit: Unit, status: UnitStatus, location: str) -> bool:
    """Tell whether a unit's folder has moved to a location, by the metastore or by the files in it."""
    run = rewriter.run
    if unit.partition is None:
        here = rewriter.swap.same_folder and any(
            is_same_place(place, location) for place in run.table.in_use.units().values()
        )
        return here and (not run.table.files.exists(unit.location) or belongs_to_another(rewriter, unit, unit.location))
    if belongs_to_another(rewriter, unit, location):
        return False
    if not is_same_place(status.outcome.old_location, unit.location):
        return True  # the old files are elsewhere; a rollback would rename them to this location
    return not _holds(rewriter, unit, unit.location) and _holds(rewriter, unit, location)


def _holds(rewriter: UnitRewriter, unit: Unit, location: str) -> bool:
    """Tell whether a folder contains a file that the run had listed; other changes there are found by comparison."""
    listed = by_place(unit.location, unit.folders)
    try:
        there = by_place(location, list_folders(rewriter.run.table.files, location))
    except PlanError:
        return False  # the folder belongs to a table format that keeps its own list of files
    return any(place in listed and listed[place].length == file.length for place, file in there.items())


def _write_place(rewriter: UnitRewriter, unit: Unit, status: UnitStatus, location: str) -> UnitStatus:
    run, before = rewriter.run, status.outcome
    old, new = (
        location if is_same_place(place, unit.location) else place
        for place in (before.old_location, before.new_location)
    )
    run.continue_journal()
    places = {"old_location": old, "new_location": new, "location": location, "base": run.table.target.base}
    details = {"unit": unit.name, "from": unit.location, "files": len(unit.files), **places}
    append_audit(run, RELOCATE, "none", details, None, [])
    outcome = replace(before, old_location=old, new_location=new)
    moved = unit.relocate(location, tuple(_place_folder(folder, unit.location, location) for folder in unit.folders))
    run.journal.write(UnitRelocated(moved, run.table.target.base, outcome))
    run.table.trust.forget_audit()
    return run.journal.status_of(unit.name)


def _place_folder(folder: Folder, here: str, there: str) -> Folder:
    return replace(
        folder,
        files=tuple(replace(file, path=f"{there.rstrip('/')}/{path_below(here, file.path)}") for file in folder.files),
    )


_NOTE = "found in use and proven anew, since the journal did not say that it was swapped"
_ENGINE = {True: "native", False: "spark"}
"""The engine to record: files that match in pairs were rewritten by ``native``, others by ``spark``."""


def adopt(rewriter: UnitRewriter, attempt: Attempt) -> UnitOutcome:
    """Record the swap of an attempt whose new files are in use.

    Args:
        rewriter: the run's rewriter of units.
        attempt: the attempt, as far as it is known.

    Raises:
        VerificationError: the new files cannot be proven to have the content of the listed ones; nothing was changed.
        RunConflictError: the lock is lost.
    """
    unit = attempt.listed.unit
    base = base_location(attempt.staged)
    new = rewriter.swap.final_location(unit, attempt.staged)
    old = locate_old_files(rewriter.run, rewriter.swap, unit, base)
    here, there = (place_now(rewriter, attempt.staged, place) for place in (new, old))
    rewriter.run.table.progress.step(unit.name, "verifying")
    proof = attempt.proof or _prove(rewriter, unit, attempt, there, here)
    if attempt.proof and not attempt.swapping:
        rewriter.run.journal.write(UnitSwapping(unit.name, attempt.staged))
    after = list_folders(rewriter.run.table.files, here)
    bytes_after = sum(file.length for folder in after for file in folder.files)
    outcome = outcome_of(unit, proof, old, new, bytes_after)
    record_swaps(rewriter.run, [outcome])
    rewriter.swap.set_pin(rewriter.run.pin(attempt.new_files, _find_swapping(rewriter, unit.name)))
    status = settle_place(rewriter, unit.name, rewriter.run.journal.status_of(unit.name))
    return move_old_files(rewriter.run, rewriter.swap, status.outcome, status.unit, attempt.staged, status.base)


def _find_swapping(rewriter: UnitRewriter, name: str) -> Record:
    """Return the last record that a unit was about to be swapped; there is one once its swap is recorded."""
    records = reversed(rewriter.run.journal.of_unit(name))
    return next(record for record in records if record.kind == "unit_swapping")


def _prove(rewriter: UnitRewriter, unit: Unit, attempt: Attempt, old: str, new: str) -> Proven:
    """Compare the files in use with those that were listed, and record the proof.

    Raises:
        VerificationError: they differ, or no source files are left; the message says what the operator can do.
    """
    run = rewriter.run
    try:
        sources = unit.relocate(old, _find_listed(unit, list_folders(run.table.files, old), old))
        found = unit.relocate(new, _find_made(attempt, new, list_folders(run.table.files, new)))
        if found.files and not sources.files:
            raise VerificationError(f"no files are left in {old} to compare with")
        proof, summaries = compare_content(run, sources, found, run.run_id if rewriter.swap.same_folder else None)
        before = files_of(run.table.files, sources.folders, summaries, run.secret)
        after = files_of(run.table.files, proof.unit.folders, proof.unit.summaries, run.secret)
    except RunConflictError:
        raise
    except (SparkcryptError, *JVM_ERRORS, OSError) as error:
        raise _describe_unproven(unit, run.run_id, old, new, error) from error
    pairs = {
        _place_path(target, new, attempt.staged): _place_path(source, old, unit.location)
        for target, source in proof.pairs.items()
    }
    evidence = evidence_of(
        _place_evidence(before, old, unit.location),
        _place_evidence(after, new, attempt.staged),
        replace(proof, pairs=pairs),
        run.secret,
        run.table.target.format,
    )
    proven = Proven(proof.rows, evidence, {"engine": _ENGINE[bool(pairs)], "notes": [_NOTE]})
    run.journal.write(UnitListed(unit, attempt.staged))
    run.journal.write(UnitStaged(unit.name, attempt.staged, proof.unit.folders))
    run.journal.write(UnitVerified(unit.name, attempt.staged, proven))
    run.journal.write(UnitSwapping(unit.name, attempt.staged))
    return proven


def _describe_unproven(unit: Unit, run_id: str, old: str, new: str, error: BaseException) -> VerificationError:
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, JVM_ERRORS):
        why = ": ".join(read_java_error(error))
    return VerificationError(
        f"{unit.name}: {new} is in use, run {run_id} had made it, and its journal does not say that it was put there; "
        f"it could not be proven to hold what {old} holds: {why}; nothing was changed. Compare the two; if the folder "
        "in use lacks rows, insert them into the table; then run once with --resume never, which closes that run and "
        "leaves both folders as they are"
    )


def _find_listed(unit: Unit, folders: tuple[Folder, ...], old: str) -> tuple[Folder, ...]:
    """Return the listed files in their present folder, without other files there, which are late commits.

    Raises:
        VerificationError: a listed file is missing or changed.
    """
    then = by_place(unit.location, unit.folders)
    now = by_place(old, folders)
    for place, file in then.items():
        if place not in now or now[place].length != file.length:
            raise VerificationError(f"{old}/{place}, which was listed, is gone or changed")
    return _keep_places(folders, old, set(then))


def _find_made(attempt: Attempt, new: str, folders: tuple[Folder, ...]) -> tuple[Folder, ...]:
    """Return the files that the run made: those that were staged if the journal lists them, else all files there.

    Raises:
        VerificationError: a staged file is missing or changed.
    """
    if attempt.made is None:
        return folders
    now = by_place(new, folders)
    wanted = {place: file.length for place, file in by_place(attempt.staged, attempt.made).items()}
    for place, length in wanted.items():
        if place not in now or now[place].length != length:
            raise VerificationError(f"{new}/{place}, which the run had made, is gone or changed")
    return _keep_places(folders, new, set(wanted))


def _keep_places(folders: tuple[Folder, ...], location: str, places: set[str]) -> tuple[Folder, ...]:
    kept = (
        replace(folder, files=tuple(file for file in folder.files if path_below(location, file.path) in places))
        for folder in folders
    )
    return tuple(folder for folder in kept if folder.files)


def _place_evidence(evidence: Mapping[str, list[FileEvidence]], here: str, there: str) -> dict[str, list[FileEvidence]]:
    """Return evidence with the paths that its files had when the run listed or made them."""
    return {
        folder: [replace(file, path=_place_path(file.path, here, there)) for file in files]
        for folder, files in evidence.items()
    }


def _place_path(path: str, here: str, there: str) -> str:
    return f"{there.rstrip('/')}/{path_below(here, path)}"


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
    journal, now = rewriter.run.journal, rewriter.run.table.in_use.units()
    attempts = attempts_of(journal.records)
    for name, last in journal.statuses().items():
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
    _delete_useless(rewriter, useless)
    return done


def _delete_useless(rewriter: UnitRewriter, folders: list[str]) -> None:
    """Delete what was staged for swaps that were not begun, unless a pin shows that the records are older than that."""
    if folders and not rewriter.run.table.trust.find_lost_pins():
        rewriter.run.disposal.delete(folders)


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
