"""Adoption: records the swap of new files that are in use although the journal lacks it, with a proof of them.

A state directory that was restored from a copy, or a journal that lost its end, may lack swaps that the metastore has.
The files to which a table points are therefore never deleted.  Unless the journal has an authentic proof of them, they
are compared with the source files that were listed, file by file if their names match, else by all rows.  Then they are
recorded as swapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.audit.evidence import (
    FileEvidence,
    describe_dark_columns,
    evidence_of,
    files_of,
    list_columns,
)
from sparkcrypt.ledger.journal.entries import Proven, UnitListed, UnitStaged, UnitSwapping, UnitVerified
from sparkcrypt.ledger.journal.unit_status import Attempt, status_of_units
from sparkcrypt.ledger.unit import Folder, Unit, UnitOutcome, base_location, by_place, list_folders, path_below
from sparkcrypt.runs.rewrite.follow_rename import place_now, settle_place
from sparkcrypt.runs.rewrite.move_old import locate_old_files, move_old_files
from sparkcrypt.runs.rewrite.record_change import record_swap
from sparkcrypt.runs.rewrite.same_content import compare_content
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error

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
        # Records the source files again, by which late commits are found: the records so far end with the staged files.
        rewriter.run.journal.write(UnitSwapping(unit, attempt.staged))
    after = list_folders(rewriter.run.table.files, here)
    outcome = UnitOutcome(
        name=unit.name,
        files=len(unit.files),
        rows=proof.rows,
        bytes_before=unit.total_bytes,
        bytes_after=sum(file.length for folder in after for file in folder.files),
        old_location=old,
        new_location=new,
        verified=True,
        codec=proof.codec,
        notes=(*proof.notes, *describe_dark_columns(proof.evidence)),
        engine=proof.engine,
        dark_columns=list_columns(proof.evidence, "dark_columns"),
        purged_columns=list_columns(proof.evidence, "purged_columns"),
    )
    record_swap(rewriter.run, unit, attempt.staged, outcome, proof.evidence)
    status = settle_place(rewriter, unit.name, status_of_units(rewriter.run.journal.records)[unit.name])
    return move_old_files(rewriter.run, rewriter.swap, status.outcome, status.unit, attempt.staged, status.base)


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
    run.journal.write(UnitSwapping(unit, attempt.staged))
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
