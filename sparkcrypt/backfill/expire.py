"""Disposal of old files after a run, when no reader needs them any more, after a relisting."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparkcrypt.backfill.carry import carry_over, new_files, old_locations, refuse_stale, stale_files
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.journal_archive import archive_records, clear_archived
from sparkcrypt.backfill.locations import users_of
from sparkcrypt.backfill.past_run import PastRuns, past_runs
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.run_state import ended, expired, paused
from sparkcrypt.backfill.swap import LocationSwap
from sparkcrypt.backfill.unit_record import by_place, restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import list_folders, old_folder, staging_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Expired:
    """What was disposed of, how many files of stale writers were carried over before, and which runs were left alone.

    ``unread`` are runs whose records cannot be read or are not to be believed, each with the reason: theirs was left.
    """

    table: str
    run_ids: tuple[str, ...]
    folders: tuple[str, ...]
    files: int
    total_bytes: int
    dry_run: bool
    carried: int = 0
    unread: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "run_ids": list(self.run_ids),
            "folders": list(self.folders),
            "files": self.files,
            "bytes": self.total_bytes,
            "carried": self.carried,
            "dry_run": self.dry_run,
            "unread": list(self.unread),
        }


@dataclass(slots=True)
class _Waste:
    """Folders that may go: those of old files, each with the unit's name, and those that failed attempts left."""

    old: list[tuple[str, UnitState, str]] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)


def expire_run(
    spark: SparkSession,
    table: str,
    policy: Policy,
    *,
    run_id: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Expired:
    """Delete the old files of runs that ended, or stopped at their budget.

    What stale writers left among them is carried over first.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: under which the run was made.
        run_id: which run; every run of the table by default.
        dry_run: tell, and change nothing.
        progress: hears what is done.

    Raises:
        ConfigError: there is no such run, or it was killed, and units may be half done.
        VerificationError: an old folder is in use, or holds files that cannot be carried over; nothing was deleted.
        RunConflictError: a run holds the table.
    """
    with past_runs(spark, table, policy, "expire", progress) as runs:
        journals = _journals(runs, run_id)
        in_use = runs.folders_in_use()
        _refuse_used_within(journals, in_use)
        carried = sum(_carried(runs, journal, dry_run=dry_run) for journal in journals)
        kept = in_use | {comparable_path(one) for one in _new_locations(runs)}
        wastes = [(journal, _waste(runs, journal, in_use, kept, dry_run=dry_run)) for journal in journals]
        sizes = [file for _, waste in wastes for folder in _folders(waste) for file in _lengths(runs.files, folder)]
        folders = tuple(folder for _, waste in wastes for folder in _folders(waste))
        _refuse_used(runs, folders)
        if not dry_run:
            for journal, waste in wastes:
                _dispose(runs, journal, waste)
            _compact(runs)
        ids = tuple(journal.run.run_id for journal in journals)
        unread = runs.trust.unread_runs()
        return Expired(runs.target.name, ids, folders, len(sizes), sum(sizes), dry_run, carried, unread)


def _refuse_used_within(journals: list[Journal], in_use: set[str]) -> None:
    """Refuse old folders in which a partition of the same table lies that was added since the run.

    Its files look like those of a stale writer, so this comes before anything is carried over.

    Raises:
        VerificationError: it names both folders.
    """
    used = sorted(in_use)
    for journal in journals:
        for name, state in state_of_units(journal.records).items():
            for old in old_locations(state) if state.swapped else ():
                below = comparable_path(old).rstrip("/") + "/"
                inner = next(iter(used[(at := bisect_left(used, below)) : at + 1]), "")
                if inner.startswith(below):
                    raise VerificationError(
                        f"{name}: {inner} is in use by the table and lies in {old}, which holds old files; move that "
                        "partition with ALTER TABLE … SET LOCATION, then expire; nothing was deleted"
                    )


def _refuse_used(runs: PastRuns, folders: tuple[str, ...]) -> None:
    """Refuse to delete what another table, or a partition of one, points to.

    Raises:
        VerificationError: it names the folder and the table.
    """
    for folder, name in users_of(runs.spark, folders, runs.target.table).items() if folders else ():
        raise VerificationError(
            f"{runs.target.name}: {folder} holds old files, and {name} points to it or into it; point that table to "
            "where the new files are, or to a copy, then expire; nothing was deleted"
        )


def _journals(runs: PastRuns, run_id: str | None) -> list[Journal]:
    ids, name = runs.ids(), runs.target.name
    if run_id is not None and run_id not in ids:
        raise ConfigError(f"{name}: run {run_id} is not known; allowed: {', '.join(ids)}")
    opened = [runs.journal(run_id)] if run_id is not None else list(runs.readable())
    for journal in opened:
        _refuse_unaudited(runs, journal)
    unfinished = [one.run.run_id for one in opened if not ended(one) and not paused(one)]
    if unfinished:
        raise ConfigError(f"{name}: run {unfinished[0]} is unfinished; run the job again to finish it, then expire")
    return [one for one in opened if not one.archived and (not expired(one) or run_id is not None)]


def _refuse_unaudited(runs: PastRuns, journal: Journal) -> None:
    """Refuse to delete anything on the word of a journal alone: the audit must say the same of each unit.

    Raises:
        VerificationError: it does not; the unit is named.
    """
    for name, state in state_of_units(journal.records).items():
        if (state.swapped or state.step == "unit_rolled_back") and not journal.archived:
            runs.trust.refuse_unaudited(journal, name, state)


def _carried(runs: PastRuns, journal: Journal, *, dry_run: bool) -> int:
    count, resumed = 0, False
    with runs.runner(journal) as runner:
        if not isinstance(runner.swap, LocationSwap):
            return 0
        for name, state in state_of_units(journal.records).items():
            if not state.swapped:
                continue
            stale = sum(len(folder.files) for folder in _stale(runs.files, name, state))
            if stale and not dry_run:
                if not resumed:
                    journal.resume(runs.lock.token)
                    resumed = True
                carry_over(runner, name, state)
            count += stale
    return count


def _stale(files: HadoopFiles, name: str, state: UnitState) -> Iterator[Any]:
    unit = restored(name, state.fields)
    for location in old_locations(state):
        yield from stale_files(unit, location, list_folders(files, location), state)


def _waste(runs: PastRuns, journal: Journal, in_use: set[str], kept: set[str], *, dry_run: bool) -> _Waste:
    """Return what of a run may go; ``kept`` is what runs have put into use, and what is in use.

    Raises:
        VerificationError: an old folder is in use, or holds what no run knows.
    """
    waste, base = _Waste(), runs.target.base
    for name, state in state_of_units(journal.records).items():
        if state.swapped:
            waste.old.extend(_old_folder(runs, journal, name, state, in_use, dry_run=dry_run))
        elif state.step == "unit_rolled_back":
            new = str(state.fields["outcome"]["new_location"])
            if comparable_path(new) not in in_use and runs.files.exists(new) and _inside(new, base):
                waste.old.append((name, state, new))
    for folder in sorted({str(record.fields["staged"]) for record in journal.records if "staged" in record.fields}):
        if comparable_path(folder) not in kept and _inside(folder, base) and runs.files.exists(folder):
            waste.abandoned.append(folder)
    return waste


def _old_folder(
    runs: PastRuns, journal: Journal, name: str, state: UnitState, in_use: set[str], *, dry_run: bool
) -> list[tuple[str, UnitState, str]]:
    old, trash = str(state.fields["outcome"]["old_location"]), _trash(journal, runs.target.base, name)
    if not runs.files.exists(old):
        return [(name, state, trash)] if runs.files.exists(trash) else []
    if comparable_path(old) in in_use:
        raise VerificationError(f"{name}: {old} is in use by the table again; nothing was deleted")
    if not dry_run:
        refuse_stale(runs.files, name, state)
    return [(name, state, old)]


def _inside(folder: str, base: str) -> bool:
    """Tell whether a folder is where runs put their files: nothing else is ever deleted without being known."""
    return comparable_path(folder).startswith(comparable_path(staging_folder(base)) + "/")


def _new_locations(runs: PastRuns) -> Iterator[str]:
    """Yield where every run of the table has put new files: they are in use, or old files of a later run."""
    for journal in runs.readable():
        for state in state_of_units(journal.records).values():
            if "outcome" in state.fields:
                yield str(state.fields["outcome"]["new_location"])


def _folders(waste: _Waste) -> list[str]:
    return list(dict.fromkeys([*(old for _, _, old in waste.old), *waste.abandoned]))


def _lengths(files: HadoopFiles, folder: str) -> list[int]:
    return [file.length for file in files.data_files(folder)]


def _dispose(runs: PastRuns, journal: Journal, waste: _Waste) -> None:
    """Delete what may go.

    An old folder is renamed first, and listed once more where no writer finds it: what came since the last listing is
    put back with it.  Where a rename is a copy of each file, it is listed where it is, and only what was listed goes.
    """
    journal.resume(runs.lock.token)
    run_id, base = journal.run.run_id, runs.target.base
    for name, state, old in waste.old:
        runs.lock.check()
        trash = _trash(journal, base, name)
        if not runs.files.renames_at_once(old) or urlsplit(old)[:2] != urlsplit(base)[:2]:
            _dispose_in_place(runs.files, name, state, old)
            continue
        if old != trash:
            runs.files.make_folder(trash.rpartition("/")[0])
            runs.files.rename(old, trash)
        try:
            _refuse_new(runs.files, name, state, trash)
        except VerificationError:
            if old != trash:
                runs.files.rename(trash, old)
            raise
        runs.files.delete_tree(trash)
    for folder in waste.abandoned:
        runs.lock.check()
        runs.files.delete_tree(folder)
    journal.append("run_expired", folders=_folders(waste))
    for folder in (f"{staging_folder(base)}/trash-{run_id}", old_folder(base, run_id)):
        if runs.files.exists(folder) and next(runs.files.walk(folder), None) is None:
            runs.files.delete_tree(folder)


def _compact(runs: PastRuns) -> None:
    """Leave one record of each run that has ended and expired; a process that ended in between is made good for."""
    store, table_id, mac = runs.store, runs.target.table_id, runs.trust.mac()
    for journal in runs.readable():
        if journal.archived:
            clear_archived(store, table_id, journal.run.run_id, mac.check)
        elif ended(journal) and expired(journal):
            archive_records(store, table_id, journal.run.run_id, journal.records, mac)


def _dispose_in_place(files: HadoopFiles, name: str, state: UnitState, old: str) -> None:
    listed = files.data_files(old)
    _refuse_new(files, name, state, old)
    for file in listed:
        files.delete_file(file.path)
    if not files.data_files(old):
        files.delete_tree(old)


def _trash(journal: Journal, base: str, unit: str) -> str:
    """Return where a unit's old folder is renamed to before it is deleted."""
    return f"{staging_folder(base)}/trash-{journal.run.run_id}/{hashlib.sha256(unit.encode()).hexdigest()[:16]}"


def _refuse_new(files: HadoopFiles, name: str, state: UnitState, trash: str) -> None:
    now = by_place(trash, list_folders(files, trash))
    unit = restored(name, state.fields)
    if state.swapped:
        at = unit.location
        stale_files(unit, trash, list_folders(files, trash), state)
        known = set(by_place(at, unit.folders)) | _carried_places(state)
    else:
        known = {place for place, _ in new_files(state)}
    unknown = sorted(now.keys() - known)
    if unknown:
        raise VerificationError(
            f"{name}: {unknown[0]} came to the old folder while it was about to be deleted, so someone writes there; "
            "the folder is where it was, run again"
        )


def _carried_places(state: UnitState) -> set[str]:
    return {
        f"{folder}/{str(file[0]).rpartition('/')[2]}".lstrip("/")
        for record in state.carried
        for folder, files in record["files"]
        for file in files
    }
