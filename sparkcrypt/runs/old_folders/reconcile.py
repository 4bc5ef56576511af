"""Reconciling of late commits: files that were added to a unit's old folder are rewritten into its new one.

A job that planned its write before the swap still writes to the old folder.  The table no longer reads that folder, so
the job's rows would be lost when the old files expire.  Its files are rewritten like any others, proven, and put beside
the new files.  The journal records this before and after, so a killed run neither loses nor duplicates rows.

`sparkcrypt.runs.old_folders.compare_with_journal` decides whether to reconcile.  If the new files are missing from
the new folder, another writer has replaced them since, and older rows must not come back: this is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.evidence import evidence_of, files_of
from sparkcrypt.ledger.journal.entries import UnitCarried, UnitCarrying
from sparkcrypt.ledger.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.ledger.new_files import NewFiles, missing_files
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    attempt_folder,
    by_place,
    list_folders,
    path_below,
    staging_folder,
)
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.changes import changes_at
from sparkcrypt.runs.rewrite.context import append_audit, place_changes
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.footers import DriverFooters, own_keys, sort_footers
from sparkcrypt.runs.table.scan import scan_footers
from sparkcrypt.runs.table.untouchable import refuse_decryption, refuse_unit
from sparkcrypt.spark.files.access_rights import copy_access
from sparkcrypt.spark.files.hadoop import HadoopFiles


def reconcile_files(
    rewriter: UnitRewriter, name: str, status: UnitStatus, location: str, came: tuple[Folder, ...]
) -> None:
    """Reconcile files that were added to one of a unit's old folders.

    Raises:
        VerificationError: the unit's new files were replaced, or the added files are suspicious or cannot be proven.
    """
    unit = replace(status.unit, location=location, folders=came)
    _rewrite_late_files(rewriter, unit, status)


def finish_reconciling(rewriter: UnitRewriter, name: str, status: UnitStatus) -> UnitStatus:
    """Finish the reconciling that a killed run had begun; return the unit's status."""
    if status.is_carrying:
        _finish_reconciling(rewriter, status.carrying[-1])
        return status_of_units(rewriter.run.journal.records)[name]
    return status


def follow_unit(rewriter: UnitRewriter, name: str, status: UnitStatus) -> Iterator[UnitStatus]:
    """Yield the status of a unit in this run, then in each later run that rewrote what the one before had put in use.

    Raises:
        VerificationError: the journal of a later run is damaged.
    """
    yield status
    for units in rewriter.run.later_units():
        later = units.get(name)
        if later is not None and later.swapped and _is_at(later.location, status.outcome):
            status = later
            yield status


def find_home(rewriter: UnitRewriter, name: str, status: UnitStatus) -> UnitStatus:
    """Return the status of a unit in the run that last swapped it: this run, or a later one that rewrote its files.

    Raises:
        VerificationError: the journal of a later run is damaged.
    """
    *_, home = follow_unit(rewriter, name, status)
    return home


def refuse_late_commit(files: HadoopFiles, name: str, status: UnitStatus) -> None:
    """Raise an error if a unit's old folder contains files that the run did not list.

    Raises:
        VerificationError: it names the first such file.
    """
    unit, old = status.unit, status.old_location
    for folder in changes_at(unit, old, list_folders(files, old), status).came:
        raise VerificationError(late_commit_message(name, folder.files[0].path))


def late_commit_message(name: str, path: str) -> str:
    """Return the message about a file that was added to an old folder from which nothing is reconciled."""
    return (
        f"{name}: {path} is in the old folder, but was not there, or not with this length, when the run listed it: a "
        "late commit left it, and its rows would be lost; read it with spark.read.parquet, and insert its rows into "
        "the table if they are not there; nothing was deleted"
    )


def old_locations(status: UnitStatus) -> tuple[str, ...]:
    """Return the folders in which a swapped unit's old files are, or may appear again."""
    outcome = status.outcome
    places = {comparable_path(place): place for place in (outcome.old_location, status.location)}
    places.pop(comparable_path(outcome.new_location), None)
    return tuple(places.values())


def _rewrite_late_files(rewriter: UnitRewriter, unit: Unit, status: UnitStatus) -> None:
    run = rewriter.run
    outcome = refuse_replaced(rewriter, unit, status).outcome
    run.table.progress.step(unit.name, "carrying over")
    footers = DriverFooters(run.table.files, own_keys(run.table.policy.key_service)).read(unit.files)
    scanned = scan_footers(
        unit, sort_footers(footers, unit.files), run.table.target, tell_shredded=run.table.trust.shredded.select
    )
    refuse_unit(scanned, run.table.target, run.table.policy, adopt=False, allow_decrypt=True)
    if not run.journal.run.allows_decryption:
        refuse_decryption(scanned, "read it with spark.read.parquet, and insert its rows into the table")
    attempt = f"{attempt_folder(run.run_id, run.lock.token)}-carried-{len(status.carried_fields) + 1}"
    staged = f"{staging_folder(run.table.target.base)}/{attempt}/{unit.partition_path}".rstrip("/")
    sources = files_of(run.table.files, unit.folders, scanned.summaries, run.secret)
    work = rewriter.stager.stage(scanned, staged, lambda _: None)
    copy_access(run.table.files, unit.location, staged)
    folders = list_folders(run.table.files, staged)
    proof = work.prove(folders, run.fresh_keys)
    targets = files_of(run.table.files, folders, proof.unit.summaries, run.secret)
    evidence = evidence_of(sources, targets, proof, run.secret, run.table.target.format)
    changes = place_changes(evidence["changes"], unit, staged, unit.location, outcome.new_location)
    carrying = UnitCarrying(
        name=unit.name,
        source=unit.location,
        to=outcome.new_location,
        files=unit.folders,
        staged=staged,
        made=folders,
        evidence={**evidence, "changes": changes},
        rows=proof.rows,
        engine=work.engine,
    )
    run.journal.write(carrying)
    _finish_reconciling(rewriter, carrying)


def _finish_reconciling(rewriter: UnitRewriter, carrying: UnitCarrying) -> None:
    """Move the staged files of a late commit beside the new files, unless they are there already, and record it."""
    run = rewriter.run
    run.lock.check()
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
    head = append_audit(run, "carry over", carrying.engine, unit, evidence["digests"], evidence["changes"])
    run.journal.write(UnitCarried(carrying.name, carrying.source, carrying.files, head))
    run.disposal.delete([carrying.staged])


def refuse_replaced(rewriter: UnitRewriter, unit: Unit, status: UnitStatus) -> UnitStatus:
    """Raise an error if a unit's new files were replaced, or it points elsewhere, since it was last swapped by a run.

    Returns:
        The status of the unit in the run that last swapped it.

    Raises:
        VerificationError: it says what has changed.
    """
    home = find_home(rewriter, unit.name, status)
    outcome, here = home.outcome, rewriter.swap.current_location(home.place)
    if here is None or comparable_path(here) != comparable_path(outcome.new_location):
        raise VerificationError(
            f"{unit.name}: it does not point to {outcome.new_location} any more, where the run had put it; someone "
            "moved it since; nothing was changed"
        )
    missing = replaced_files(rewriter.run.table.files, home)
    if missing:
        raise VerificationError(
            f"{unit.name}: {missing[0]}, which the run had written to {outcome.new_location}, is gone or changed: "
            "someone has replaced the unit's rows since, so older ones must not come back; nothing was changed"
        )
    return home


def replaced_files(files: HadoopFiles, status: UnitStatus) -> list[str]:
    """Return the files that a run wrote for a unit and that are missing or changed, as paths below the unit.

    Raises:
        VerificationError: the run is archived, so its files are not known.
    """
    return missing_new_files(status, list_folders(files, status.new_location))


def missing_new_files(status: UnitStatus, folders: tuple[Folder, ...]) -> list[str]:
    """Return the files that a run wrote for a unit and that a listing of their folder lacks, or has with other lengths.

    Raises:
        VerificationError: the run is archived, so its files are not known.
    """
    return missing_files(dict(new_files(status)), by_place(status.new_location, folders))


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


def list_reconciled_files(carrying: Iterable[UnitCarrying]) -> Iterator[tuple[str, int]]:
    """Yield path below the unit and length in bytes of the files that were made of late commits.

    Args:
        carrying: the records to include, of a unit's `UnitStatus.carrying`.
    """
    for record in carrying:
        for place, file in by_place(record.staged, record.made).items():
            yield place, file.length


def _is_at(location: str, outcome: UnitOutcome) -> bool:
    return comparable_path(location) == comparable_path(outcome.new_location)
