"""Late commits: old folders are compared with what their run had listed, and files that were added are reconciled.

A job that planned its write before the swap still writes to the old folder.  The table no longer reads that folder, so
the job's rows would be lost when the old files expire.  Its files are rewritten like any others, proven, and put beside
the new files.  The journal records this before and after, so a killed run neither loses nor duplicates rows.

Files that were added are reconciled only if nothing else has happened: two listings, some time apart, show that no
listed file is missing and no writer is at work.  A compaction adds files before it removes others, so its rows would
otherwise be duplicated.  Listed files that are missing were deleted, or replaced by an overwrite that was planned
before the swap, and the table still has their rows: this is an open problem of the table, which only the operator can
decide.  If the new files are missing from the new folder, another writer has replaced them since, and older rows must
not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sparkcrypt.errors import RunConflictError, SourceChangedError, SparkcryptError, VerificationError
from sparkcrypt.ledger.audit.audit import place_changes
from sparkcrypt.ledger.audit.evidence import evidence_of, files_of
from sparkcrypt.ledger.journal.entries import UnitCarried, UnitCarrying
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.unit import Folder, attempt_folder, list_folders, staging_folder
from sparkcrypt.paths import comparable_path, is_same_place
from sparkcrypt.runs.old_folders.old_folder import (
    Changes,
    Listing,
    OldFolder,
    expired_folders,
    expiring_folders,
    missing_new_files,
    new_files,
    proven_files,
    settle_move,
    wait_until_quiet,
)
from sparkcrypt.runs.old_folders.problems import (
    BACK,
    CUT_OFF,
    EMPTIED,
    UNDONE,
    WRITER_AT_WORK,
    Decision,
    Problem,
    Problems,
    problems_of_target,
)
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS, append_audit
from sparkcrypt.runs.rewrite.engine import stage_unit
from sparkcrypt.runs.rewrite.recover import belongs_to_another
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.footers import DriverFooters, own_keys
from sparkcrypt.runs.table.scan import scan_footers
from sparkcrypt.runs.table.untouchable import refuse_decryption, refuse_unit
from sparkcrypt.spark.files.access_rights import copy_access
from sparkcrypt.spark.files.hadoop import HadoopFiles


def finish_reconciling(rewriter: UnitRewriter, old: OldFolder) -> OldFolder:
    """Finish the reconciling that a killed run had begun; return the old folder as it is recorded."""
    if not old.status.is_carrying:
        return old
    _finish_reconciling(rewriter, old.status)
    return replace(old, status=rewriter.run.journal.status_of(old.name))


def follow_unit(rewriter: UnitRewriter, status: UnitStatus) -> Iterator[UnitStatus]:
    """Yield the status of a unit in this run, then in each later run that rewrote what the one before had put in use.

    Raises:
        VerificationError: the journal of a later run is damaged.
    """
    yield status
    for later in rewriter.run.table.trust.later_of(rewriter.run.run_id, str(status.fields["unit"])):
        if later.swapped and is_same_place(later.location, status.outcome.new_location):
            status = later
            yield status


def find_home(rewriter: UnitRewriter, status: UnitStatus) -> UnitStatus:
    """Return the status of a unit in the run that last swapped it: this run, or a later one that rewrote its files.

    Raises:
        VerificationError: the journal of a later run is damaged.
    """
    *_, home = follow_unit(rewriter, status)
    return home


def refuse_late_commit(files: HadoopFiles, old: OldFolder) -> None:
    """Raise an error if a unit's old folder contains files that the run did not list.

    Raises:
        VerificationError: it names the first such file.
    """
    for folder in old.compare(old.location, list_folders(files, old.location)).came:
        raise VerificationError(late_commit_message(old.name, folder.files[0].path))


def late_commit_message(name: str, path: str) -> str:
    """Return the message about a file that was added to an old folder from which nothing is reconciled."""
    return (
        f"{name}: {path} is in the old folder, but was not there, or not with this length, when the run listed it: a "
        "late commit left it, and its rows would be lost; read it with spark.read.parquet, and insert its rows into "
        "the table if they are not there; nothing was deleted"
    )


def _reconcile_files(rewriter: UnitRewriter, status: UnitStatus, changes: Changes) -> None:
    """Reconcile files that were added to one of a unit's old folders.

    Raises:
        VerificationError: the unit's new files were replaced, the added files are suspicious or cannot be proven, or
            the records are older than the unit, so that the rows may be in the table already.
    """
    run, unit = rewriter.run, replace(status.unit, location=changes.location, folders=changes.came)
    outcome = refuse_replaced(rewriter, status).outcome
    run.table.trust.refuse_older_than(unit, run.journal.log)
    run.table.progress.step(unit.name, "carrying over")
    footers = DriverFooters(run.table.files, own_keys(run.table.policy.key_service)).read(unit.files)
    scanned = scan_footers(unit, footers, run.table.target, tell_shredded=run.table.trust.shredded.select)
    refuse_unit(scanned, run.table.target, run.table.policy, adopt=False, allow_decrypt=True)
    if not run.journal.run.allows_decryption:
        refuse_decryption(scanned, "read it with spark.read.parquet, and insert its rows into the table")
    attempt = f"{attempt_folder(run.run_id, run.lock.token)}-carried-{len(status.carried_fields) + 1}"
    staged = f"{staging_folder(run.table.target.base)}/{attempt}/{unit.partition_path}".rstrip("/")
    sources = files_of(run.table.files, unit.folders, scanned.summaries, run.secret)
    work = stage_unit(rewriter.stager, scanned, staged)
    copy_access(run.table.files, unit.location, staged)
    folders = list_folders(run.table.files, staged)
    proof = work.prove(folders, run.fresh_keys)
    targets = files_of(run.table.files, folders, proof.unit.summaries, run.secret)
    evidence = evidence_of(sources, targets, proof, run.secret, run.table.target.format)
    carrying = UnitCarrying(
        name=unit.name,
        source=unit.location,
        to=outcome.new_location,
        files=unit.folders,
        staged=staged,
        made=folders,
        evidence={
            **evidence,
            "changes": place_changes(evidence["changes"], unit.location, staged, unit.location, outcome.new_location),
        },
        rows=proof.rows,
        engine=work.engine,
    )
    run.journal.write(carrying)
    _finish_reconciling(rewriter, run.journal.status_of(unit.name))


def _finish_reconciling(rewriter: UnitRewriter, status: UnitStatus) -> None:
    """Move the staged files of a late commit beside the new files, unless they are there already, and record it.

    The unit's pin names the record of this before, so that an older copy of the records does not do it once more.
    """
    run, carrying = rewriter.run, status.carrying[-1]
    run.lock.check()
    *_, begun = (record for record in run.journal.of_unit(carrying.name) if record.kind == carrying.kind)
    rewriter.swap.set_pin(run.pin(proven_files(status), begun))
    for folder in carrying.made:
        for file in folder.files:
            place = f"{folder.relative}/{file.path.rpartition('/')[2]}".lstrip("/")
            source, target = f"{carrying.staged}/{place}", f"{carrying.to}/{place}"
            if run.table.files.exists(source):
                run.table.files.make_folder(target.rpartition("/")[0])
                run.table.files.rename(source, target)
            elif not run.table.files.is_file(target) or run.table.files.status(target).length != file.length:
                raise VerificationError(
                    f"{carrying.name}: {source} was staged to be carried over, and is neither there nor at {target}; "
                    f"someone deleted it; what it was made of is still below {carrying.source}"
                )
    count = sum(len(folder.files) for folder in carrying.made)
    unit, evidence = {"unit": carrying.name, "files": count, "rows": carrying.rows}, carrying.evidence
    append_audit(run, "carry over", carrying.engine, unit, evidence["digests"], evidence["changes"])
    run.journal.write(UnitCarried(carrying.name, carrying.source, carrying.files))
    run.disposal.remove_emptied(carrying.staged, seconds_old=ANSWER_SECONDS)


def refuse_replaced(rewriter: UnitRewriter, status: UnitStatus) -> UnitStatus:
    """Raise an error if a unit's new files were replaced, or it points elsewhere, since it was last swapped by a run.

    Returns:
        The status of the unit in the run that last swapped it.

    Raises:
        VerificationError: it says what has changed.
    """
    home, name = find_home(rewriter, status), status.fields["unit"]
    new = home.outcome.new_location
    if not _is_in_effect(rewriter, home):
        raise VerificationError(
            f"{name}: it does not point to {new} any more, where the run had put it; someone moved it since; nothing "
            "was changed"
        )
    missing = missing_new_files(home, list_folders(rewriter.run.table.files, home.new_location))
    if missing:
        raise VerificationError(
            f"{name}: {missing[0]}, which the run had written to {new}, is gone or changed: someone has replaced the "
            "unit's rows since, so older ones must not come back; nothing was changed"
        )
    return home


@dataclass(frozen=True, slots=True)
class Suspect:
    """An old folder that has changed.

    Attributes:
        old: the old folder, with its unit.
        changes: the changes in the folder.
        listed: the folder's files.
        back: old files in it that the table reads again.
    """

    old: OldFolder
    changes: Changes
    listed: tuple[Folder, ...]
    back: tuple[str, ...] = ()


def find_suspects(
    rewriter: UnitRewriter, units: Collection[str] | None, failed: list[FailedUnit], *, finish: bool = True
) -> list[Suspect]:
    """Return the old folders that have changed.

    Args:
        rewriter: the run's rewriter of units; one that makes copies has no old folder.
        units: the names of the units; all of them by default.
        failed: receives the units that could not be checked.
        finish: finish reconciling and moves that a killed command had begun; otherwise nothing is written.

    Raises:
        RunConflictError: the lock is lost.
    """
    if rewriter.swap.copies:  # its source is no old folder and may still be written to
        return []
    run, found = rewriter.run, list[Suspect]()
    expired, expiring = expired_folders(run.journal.records), expiring_folders(run.journal.records)
    used: set[str] | None = None
    undone = [old for old in OldFolder.list_undone(run.journal) if comparable_path(old.location) not in expired]
    for old in list(OldFolder.list_waiting(run.journal)):
        resolved = old.status.resolved
        if (resolved is not None and resolved.keep == "old") or (units is not None and old.name not in units):
            continue  # a person decided that old files which are in use again are right, or it is not asked for
        try:
            if used is None:
                used = {comparable_path(place) for place in run.table.in_use.units().values()}
            if finish and old.status.is_carrying:
                run.continue_journal()
                old = finish_reconciling(rewriter, old)
            found.extend(_find_in_unit(rewriter, old, used, expiring, finish=finish))
        except RunConflictError:
            raise
        except SparkcryptError as error:
            failed.append(FailedUnit(old.name, type(error).__name__, str(error)))
    return [*found, *(suspect for old in undone for suspect in _find_at_undone(rewriter, old))]


def _find_at_undone(rewriter: UnitRewriter, old: OldFolder) -> Iterator[Suspect]:
    """Yield the folder of an undone swap if files were added to it."""
    table = rewriter.run.table
    if not table.in_use.find_own(seconds_old=60.0).uses(old.location):
        listed = list_folders(table.files, old.location)
        changes = old.compare(old.location, listed)
        if changes:
            yield Suspect(old, changes, listed)


def _find_in_unit(
    rewriter: UnitRewriter, old: OldFolder, used: set[str], expiring: set[str], *, finish: bool
) -> Iterator[Suspect]:
    files = rewriter.run.table.files
    for location in old.locations if rewriter.swap.repoints else (old.location,):
        listed = list_folders(files, location)
        if comparable_path(location) in used and rewriter.swap.repoints:
            back = old.find_back(location, listed)
            if back:
                yield Suspect(old, Changes(location, (), (), ()), listed, back)
            continue
        changes = old.compare(location, listed)
        if changes.only_gone and comparable_path(location) in expiring and _is_expiring(files, location):
            continue
        if changes.gone and not listed and finish:
            moved = settle_move(rewriter, old)
            if moved is not old:
                yield from _find_in_unit(rewriter, moved, used, expiring, finish=finish)
                return
        came = changes.came and not old.find_back(location, listed)
        if came and belongs_to_another(rewriter, old.status.unit, location):
            continue
        if changes and not (changes.only_gone and is_superseded(rewriter, old.status)):
            yield Suspect(old, changes, listed)


def _is_expiring(files: HadoopFiles, location: str) -> bool:
    """Tell whether an `expire` that was killed, and had begun to delete an old folder, left what is missing there.

    Where a rename is one step, it deletes a folder elsewhere, so the folder itself is not there any more.
    """
    return not (files.renames_at_once(location) and files.exists(location))


def is_superseded(rewriter: UnitRewriter, status: UnitStatus) -> bool:
    """Tell whether the table no longer has any row that the run wrote: they were replaced or dropped since.

    If later runs rewrote the unit, its rows may have been replaced before each of them: INSERT OVERWRITE of a partition
    deletes the files in the folder to which it points, and those in its default folder, where old files may be.
    """
    files = rewriter.run.table.files
    if not rewriter.swap.repoints:
        return _has_replaced_all(status, list_folders(files, status.new_location))
    try:
        runs = tuple(follow_unit(rewriter, status))
        if any(_has_replaced_all(before, later.unit.folders) for before, later in pairwise(runs)):
            return True
        return not _is_in_effect(rewriter, runs[-1]) or _has_replaced_all(
            runs[-1], list_folders(files, runs[-1].new_location)
        )
    except VerificationError:
        return False  # the journal of a later run is not trusted, or lists no files, so the operator decides


def _is_in_effect(rewriter: UnitRewriter, status: UnitStatus) -> bool:
    """Tell whether a unit points to where a run has put its new files."""
    here = rewriter.swap.current_location(status.place)
    return here is not None and comparable_path(here) == comparable_path(status.new_location)


def _has_replaced_all(status: UnitStatus, folders: tuple[Folder, ...]) -> bool:
    """Tell whether a listing of the folder of a run's new files, if it made any, has none of them."""
    made = list(new_files(status))
    return bool(made) and len(missing_new_files(status, folders)) == len(made)


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison of old folders.

    Attributes:
        carried: the number of late commits' files that were reconciled.
        failed: the units of which something stays open, each with the reason.
        notes: notes for the report.
        problems: the open problems of the table.
    """

    carried: int = 0
    failed: tuple[FailedUnit, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def compare_run(rewriter: UnitRewriter, problems: Problems, units: Collection[str] | None = None) -> Compared:
    """Compare the old folders of a run's units with what it had listed; reconcile late commits or open problems.

    Args:
        rewriter: the run's rewriter of units.
        problems: the problems of its table.
        units: the names of the units; all of them by default.  Folders of undone swaps are compared in any case.

    Returns:
        How many files were reconciled, and the units of which something stays open, whose old files must be kept.

    Raises:
        RunConflictError: the lock is lost.
    """
    failed: list[FailedUnit] = []
    suspects = find_suspects(rewriter, units, failed)
    quiet = _wait_for_writers(rewriter, problems, [suspect for suspect in suspects if suspect.changes.came])
    carried = 0
    for suspect in suspects:
        try:
            carried += _decide(rewriter, problems, suspect, quiet.get(suspect.changes.location), failed)
        except RunConflictError:
            raise
        except SparkcryptError as error:
            failed.append(FailedUnit(suspect.old.name, type(error).__name__, str(error)))
    return Compared(carried, tuple(failed))


def problems_of(rewriter: UnitRewriter) -> Problems:
    """Return the problems of the table that a rewriter works on."""
    run = rewriter.run
    return problems_of_target(run.table.target, run.table.store, lambda: run.mac, run.table.files)


def _wait_for_writers(rewriter: UnitRewriter, problems: Problems, suspects: list[Suspect]) -> dict[str, Listing]:
    """Wait for the writers of added files; folders of units with an open problem are only listed once more."""
    if not suspects:
        return {}
    run = rewriter.run
    known = {problem.unit for problem in problems.open() if problem.run_id == run.run_id}
    waits = {suspect.changes.location: suspect.old.name not in known for suspect in suspects}
    run.table.progress.step(suspects[0].old.name, "waiting until writers have ended")
    listed = {suspect.changes.location: suspect.listed for suspect in suspects}
    return wait_until_quiet(run.table.files, waits, run.table.target.base, listed)


def _decide(
    rewriter: UnitRewriter, problems: Problems, suspect: Suspect, quiet: Listing | None, failed: list[FailedUnit]
) -> int:
    """Reconcile the files added to an old folder, or open a problem; return the number of reconciled files."""
    old, changes = suspect.old, suspect.changes
    if suspect.back:
        what = BACK, _back_message(suspect)
        failed.append(open_problem(rewriter, problems, old.name, changes, what, suspect.back))
        return 0
    if quiet is not None:
        changes = old.compare(changes.location, quiet.folders)
    problem = _describe_problem(rewriter, old, changes, quiet)
    if problem is None and changes.came:
        try:
            rewriter.run.continue_journal()
            _reconcile_files(rewriter, old.status, changes)
            _settle(rewriter, problems, old.name)
            return len(changes.places)
        except SourceChangedError:
            raise
        except VerificationError as error:
            problem = "cannot be carried over", str(error)
    if problem is not None:
        failed.append(open_problem(rewriter, problems, old.name, changes, problem))
    return 0


def _describe_problem(
    rewriter: UnitRewriter, old: OldFolder, changes: Changes, quiet: Listing | None
) -> tuple[str, str] | None:
    """Return the kind and the message of a problem; None if added files may be reconciled, or nothing is to be done."""
    name, status, location = old.name, old.status, changes.location
    came = f"{changes.places[0]}{_name_more(changes.places)} came to the old folder {location}" if changes.came else ""
    missing = f"{changes.gone[0]}{_name_more(changes.gone)}" if changes.gone else ""
    if changes.only_gone and is_superseded(rewriter, status):
        return None
    if changes.carried and missing:
        return (
            "carried over, then removed",
            f"{name}: {', '.join(changes.carried)} had come to the old folder {location} and was carried over, and "
            f"{missing}, which was known there, is gone or changed since: a compaction may have written the same rows "
            "once more, so that the table has them twice, or they were erased" + (f"; {came}" if came else ""),
        )
    if came and missing:
        return (
            "overwritten",
            f"{name}: {came}, and {missing}, which the run had listed, is gone or changed: a late commit overwrote the "
            "unit there, or compacted it; nobody can tell which rows should be there; nothing was changed",
        )
    if missing:
        return (
            "removed",
            f"{name}: {missing}, which the run had listed, is gone from the old folder {location}, or changed: someone "
            "erased rows there that the table still has, or deleted old files; nothing was changed",
        )
    if came and old.undone is not None and not status.swapped:
        return (
            UNDONE,
            f"{name}: {came}, which was in use until the run took its swap back: the writer had planned before that, "
            "and the table has not its rows; read it with spark.read.parquet, and insert its rows into the table",
        )
    if came and old.undone is None and not rewriter.swap.repoints:
        return "came late", late_commit_message(name, changes.came[0].files[0].path)
    if came and not changes.holds_known:
        return (
            EMPTIED,
            f"{name}: {came}, from which all that the run knew there is gone (the old files are in "
            f"{status.outcome.old_location}), so nobody can tell whether its writer meant to add rows or to replace "
            "them; nothing was changed; read it with spark.read.parquet, and insert its rows into the table; if they "
            "should replace rows, look at those of this unit first, and leave all others as they are",
        )
    if came and quiet is not None and quiet.at_work is not None:
        return (
            WRITER_AT_WORK,
            f"{name}: {came}, and {quiet.at_work} is there, so its writer may not have ended; it is carried over by a "
            "later run when that is gone: delete it if its writer was killed",
        )
    return None


def _back_message(suspect: Suspect) -> str:
    return (
        f"{suspect.old.name}: the table points to {suspect.changes.location} again, and {suspect.back[0]}"
        f"{_name_more(suspect.back)} there had been replaced by the run: DROP PARTITION, followed by an INSERT, ADD "
        "PARTITION or MSCK REPAIR TABLE, brought old rows back; the unit stays unchanged"
    )


def open_problem(
    rewriter: UnitRewriter,
    problems: Problems,
    name: str,
    changes: Changes,
    what: tuple[str, str],
    back: tuple[str, ...] = (),
) -> FailedUnit:
    """Open a problem of a table; for a bare folder, which has none, the finding is only reported.

    Args:
        rewriter: the run's rewriter of units.
        problems: the problems of its table.
        name: the unit's name.
        changes: the changes in its old folder.
        what: the kind of the problem, and its message.
        back: old files that are in use again.
    """
    run, (kind, message) = rewriter.run, what
    if run.table.target.table is None:
        return FailedUnit(name, "VerificationError", message)
    found = Problem(
        problem="",
        table=run.table.target.name,
        run_id=run.run_id,
        unit=name,
        kind=kind,
        old_location=changes.location,
        came=back or changes.places,
        gone=changes.gone,
        carried=changes.carried,
        message=message,
        base=run.table.target.base,
    )
    opened, earlier = problems.add(found), problems.of(run.run_id, name)
    if kind == CUT_OFF and earlier is not None:  # what it says is no longer so: the log lacks the end of its swap
        _close(rewriter, problems, earlier, f"the swap is found to be cut off now: problem {opened.problem}")
    return opened.as_failed()


def _settle(rewriter: UnitRewriter, problems: Problems, name: str) -> None:
    """Close the problem of a writer at work once its files are reconciled."""
    run = rewriter.run
    open_one = problems.of(run.run_id, name) if run.table.target.table is not None else None
    if open_one is not None and open_one.kind == WRITER_AT_WORK:
        _close(rewriter, problems, open_one, "its writer has ended, and its files were carried over")


def _close(rewriter: UnitRewriter, problems: Problems, settled: Problem, reason: str) -> None:
    """Close a problem on which nobody needs to decide any more."""
    decision = Decision("both", reason)
    note_resolution(rewriter, settled, decision)
    problems.close(settled.problem, decision)


def note_resolution(rewriter: UnitRewriter, problem: Problem, decision: Decision, **more: Any) -> None:
    """Write the decision on a problem into the audit."""
    append_audit(rewriter.run, "resolve", "none", {**problem.resolution(decision), **more}, None, [])


def _name_more(places: tuple[str, ...]) -> str:
    return f" and {len(places) - 1:,} more" if len(places) > 1 else ""
