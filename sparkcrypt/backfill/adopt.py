"""Adoption: new files that are in use, though the journal does not say that they were swapped, are proven once more.

A state directory that was restored from a copy, or a journal that lost its end, knows less than the metastore.  What a
table points to is never deleted for that: it is compared with the source files that were listed, file by file where
their names tell which became which, else by all rows, and then written down as the swap that it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparkcrypt.backfill.attempts import Attempt
from sparkcrypt.backfill.evidence import FileEvidence, evidence_of, files_of
from sparkcrypt.backfill.ledger import record_swap
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.same_content import compare_content
from sparkcrypt.backfill.unit_record import below, by_place, described, listed, restored
from sparkcrypt.backfill.units import Folder, Unit, list_folders
from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.spark.jvm import JVM_ERRORS, cause_of

_NOTE = "found in use and proven anew, since the journal did not say that it was swapped"
_ENGINE = {True: "native", False: "spark"}
"""What compares file by file, and what compares rows."""


def adopt(runner: Runner, attempt: Attempt) -> UnitOutcome:
    """Write down an attempt whose new files are in use as the swap that it is.

    Args:
        runner: of the run.
        attempt: what is known of it.

    Raises:
        VerificationError: the new files cannot be proven to say what the listed ones said; nothing was changed.
        RunConflictError: the lock is lost.
    """
    unit = restored(attempt.name, attempt.listed)
    new, old = runner.swap.final_location(unit, attempt.staged), runner.old_files_of(unit)
    runner.run.progress.step(unit.name, "verifying")
    known = attempt.proof or _proven(runner, unit, attempt, old, new)
    if attempt.proof and not attempt.swapping:  # its records end with the staged files, and old ones are told apart
        runner.run.journal.append("unit_swapping", unit=unit.name, staged=attempt.staged, **described(unit))
    about = known.get("about", {})
    after = list_folders(runner.run.files, new)
    outcome = UnitOutcome(
        name=unit.name,
        files=len(unit.files),
        rows=int(known["rows"]),
        bytes_before=unit.total_bytes,
        bytes_after=sum(file.length for folder in after for file in folder.files),
        old_location=old,
        new_location=new,
        verified=True,
        codec=about.get("codec"),
        notes=tuple(about.get("notes", ())),
        engine=about.get("engine", "spark"),
    )
    record_swap(runner.run, unit, attempt.staged, outcome, known["evidence"])
    return runner.moved(outcome, unit.partition_path)


def _proven(runner: Runner, unit: Unit, attempt: Attempt, old: str, new: str) -> Mapping[str, Any]:
    """Compare the files in use with those that were listed, and write down what was found.

    Raises:
        VerificationError: they differ, or there is nothing left to compare with; it says what a person can do.
    """
    run = runner.run
    try:
        sources = unit.at(old, _still_there(unit, list_folders(run.files, old), old))
        found = unit.at(new, _made(attempt, new, list_folders(run.files, new)))
        if found.files and not sources.files:
            raise VerificationError(f"no files are left in {old} to compare with")
        proof, summaries = compare_content(run, sources, found, run.run_id if runner.swap.same_folder else None)
        before = files_of(run.files, sources.folders, summaries, run.secret)
        after = files_of(run.files, proof.unit.folders, proof.unit.summaries, run.secret)
    except RunConflictError:
        raise
    except (SparkcryptError, *JVM_ERRORS, OSError) as error:
        raise _unproven(unit, run.run_id, old, new, error) from error
    pairs = {
        _at(target, new, attempt.staged): _at(source, old, unit.location) for target, source in proof.pairs.items()
    }
    evidence = evidence_of(
        _elsewhere(before, old, unit.location),
        _elsewhere(after, new, attempt.staged),
        replace(proof, pairs=pairs),
        run.secret,
    )
    known = {"rows": proof.rows, "evidence": evidence, "about": {"engine": _ENGINE[bool(pairs)], "notes": [_NOTE]}}
    run.journal.append("unit_listed", unit=unit.name, staged=attempt.staged, **described(unit))
    run.journal.append("unit_staged", unit=unit.name, staged=attempt.staged, files=listed(proof.unit.folders))
    run.journal.append("unit_verified", unit=unit.name, staged=attempt.staged, **known)
    run.journal.append("unit_swapping", unit=unit.name, staged=attempt.staged, **described(unit))
    return known


def _unproven(unit: Unit, run_id: str, old: str, new: str, error: BaseException) -> VerificationError:
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, JVM_ERRORS):
        said = ": ".join(cause_of(error))
    return VerificationError(
        f"{unit.name}: {new} is in use, run {run_id} had made it, and its journal does not say that it was put there; "
        f"it could not be proven to hold what {old} holds: {said}; nothing was changed. Compare the two; if the folder "
        "in use lacks rows, insert them into the table; then run once with --resume never, which closes that run and "
        "leaves both folders as they are"
    )


def _still_there(unit: Unit, folders: tuple[Folder, ...], old: str) -> tuple[Folder, ...]:
    """Return the listed files where they are now; others that came there are a stale writer's.

    Raises:
        VerificationError: one is gone or changed.
    """
    then = by_place(unit.location, unit.folders)
    now = by_place(old, folders)
    for place, file in then.items():
        if place not in now or now[place].length != file.length:
            raise VerificationError(f"{old}/{place}, which was listed, is gone or changed")
    return _kept(folders, old, set(then))


def _made(attempt: Attempt, new: str, folders: tuple[Folder, ...]) -> tuple[Folder, ...]:
    """Return the files that the run made: those that were staged, where that is known, else all.

    Raises:
        VerificationError: one of them is gone or changed.
    """
    if attempt.made is None:
        return folders
    now = by_place(new, folders)
    wanted = {below(attempt.staged, file[0]): int(file[1]) for _, files in attempt.made for file in files}
    for place, length in wanted.items():
        if place not in now or now[place].length != length:
            raise VerificationError(f"{new}/{place}, which the run had made, is gone or changed")
    return _kept(folders, new, set(wanted))


def _kept(folders: tuple[Folder, ...], location: str, places: set[str]) -> tuple[Folder, ...]:
    kept = (
        replace(folder, files=tuple(file for file in folder.files if below(location, file.path) in places))
        for folder in folders
    )
    return tuple(folder for folder in kept if folder.files)


def _elsewhere(evidence: Mapping[str, list[FileEvidence]], here: str, there: str) -> dict[str, list[FileEvidence]]:
    """Return evidence of files with the paths that they had when the run listed or made them."""
    return {
        folder: [replace(file, path=_at(file.path, here, there)) for file in files]
        for folder, files in evidence.items()
    }


def _at(path: str, here: str, there: str) -> str:
    return f"{there.rstrip('/')}/{below(here, path)}"
