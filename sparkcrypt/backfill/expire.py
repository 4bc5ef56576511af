"""Disposal of old files after a run, when no reader needs them any more, after a relisting."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.awaiting import age_seconds
from sparkcrypt.backfill.carry import new_files, old_locations, refuse_stale
from sparkcrypt.backfill.compare import compare_run, problems_of, suspected
from sparkcrypt.backfill.in_use import Places
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.journal_archive import archive_records, clear_archived
from sparkcrypt.backfill.old_changes import known_places
from sparkcrypt.backfill.past_run import PastRuns, past_runs
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.run_state import ended, expired, paused
from sparkcrypt.backfill.standing import Standing, SwappedUnit, standing_of
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
    """What was disposed of, what was carried over before, what stays, and which runs were left alone.

    ``carried`` are files of stale writers; ``superseded`` tells why which unit's old folder stays; ``unread`` are runs
    whose records cannot be read or are not to be believed, each with the reason: theirs was left; ``younger`` is how
    many runs keep their old files since they are younger than was asked.
    """

    table: str
    run_ids: tuple[str, ...]
    folders: tuple[str, ...]
    files: int
    total_bytes: int
    dry_run: bool
    carried: int = 0
    unread: tuple[str, ...] = ()
    superseded: Mapping[str, str] = field(default_factory=dict)
    younger: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "run_ids": list(self.run_ids),
            "folders": list(self.folders),
            "files": self.files,
            "bytes": self.total_bytes,
            "carried": self.carried,
            "superseded": dict(self.superseded),
            "younger": self.younger,
            "dry_run": self.dry_run,
            "unread": list(self.unread),
        }


@dataclass(slots=True)
class _Waste:
    """Folders of one run that may go: of old files, each with its unit; and those that failed attempts left."""

    old: dict[str, tuple[str, UnitState]] = field(default_factory=dict)
    abandoned: list[str] = field(default_factory=list)

    @property
    def folders(self) -> list[str]:
        """All of them."""
        return list(dict.fromkeys([*self.old, *self.abandoned]))


def expire_run(
    spark: SparkSession,
    table: str,
    policy: Policy,
    *,
    run_id: str | None = None,
    older_than_seconds: float = 0.0,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Expired:
    """Delete the old files of runs that ended, or stopped at their budget.

    What stale writers left among them is carried over first.  A unit whose old folder is in use again is left as it is.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: under which the run was made.
        run_id: which run; every run of the table by default.
        older_than_seconds: a run that wrote later keeps its old files.
        dry_run: tell, and change nothing.
        progress: hears what is done.

    Raises:
        ConfigError: there is no such run, or it was killed, and units may be half done.
        VerificationError: new files are gone, an old folder is used by somebody else, or holds files that cannot be
            carried over; nothing was deleted.
        RunConflictError: a run holds the table.
    """
    with past_runs(spark, table, policy, "expire", progress) as runs:
        known = _journals(runs, run_id)
        journals = [one for one in known if age_seconds(one) >= older_than_seconds]
        places, standing = runs.in_use.look(), standing_of(runs, journals)
        _refuse_used(runs, places, standing)
        carried = sum(_carried(runs, journal, standing, dry_run=dry_run) for journal in journals)
        kept = {comparable_path(one) for one in _new_locations(runs)}
        wastes = [(journal, _waste(runs, journal, standing, places, kept, dry_run=dry_run)) for journal in journals]
        folders = tuple(dict.fromkeys(folder for _, waste in wastes for folder in waste.folders))
        sizes = [file for folder in folders for file in _lengths(runs.files, folder)]
        if not dry_run:
            for journal, waste in wastes:
                _dispose(runs, journal, waste)
            _compact(runs)
        ids = tuple(journal.run.run_id for journal in journals)
        superseded, younger, unread = dict(standing.superseded), len(known) - len(journals), runs.trust.unread_runs()
        name = runs.target.name
        return Expired(name, ids, folders, len(sizes), sum(sizes), dry_run, carried, unread, superseded, younger)


def _refuse_used(runs: PastRuns, places: Places, standing: Standing) -> None:
    """Refuse to delete what another table, or another partition, points to, or into which it points.

    Files of a partition that lies in an old folder look like those of a stale writer, so this comes before anything is
    carried over.

    Raises:
        VerificationError: it names the folder and who points to it.
    """
    for one in standing.settled:
        for old in old_locations(one.state):
            user = places.user_of(old, but=one.name)
            if user is not None:
                raise VerificationError(
                    f"{runs.target.name}: {one.name}: {old} holds old files, and {user}, which is in it, above it or "
                    "the same; point that to where the new files are, to a folder of its own, or to a copy, with ALTER "
                    "TABLE … SET LOCATION, then expire; nothing was deleted"
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


def _carried(runs: PastRuns, journal: Journal, standing: Standing, *, dry_run: bool) -> int:
    """Carry over what came to a run's old folders; a dry run counts it.

    Raises:
        VerificationError: a problem of one of its units is open, or another reason keeps its old files.
    """
    units = {one.name for one in standing.of(journal)}
    with runs.runner(journal) as runner:
        if dry_run:
            return sum(len(changes.places) for _, changes in suspected(runner, units))
        compared = compare_run(runner, units)
        kept = [one.message for one in compared.failed]
        known = problems_of(runner).open()
    kept += [one.message for one in known if not one.run_id or (one.run_id == journal.run.run_id and one.unit in units)]
    if kept:
        raise VerificationError(kept[0])
    return compared.carried


def _waste(
    runs: PastRuns, journal: Journal, standing: Standing, places: Places, kept: set[str], *, dry_run: bool
) -> _Waste:
    """Return what of a run may go; ``kept`` is what runs have put into use.

    Raises:
        VerificationError: an old folder holds what no run knows.
    """
    waste, base, disposal = _Waste(), runs.target.base, runs.disposal(journal.run.run_id)
    states = state_of_units(journal.records)  # now, since files may have been carried over
    for one in standing.of(journal):
        old = _old_folder(runs, one)
        if old is not None:
            if not dry_run and runs.files.exists(one.old):
                refuse_stale(runs.files, one.name, states[one.name])
            waste.old[old] = (one.name, states[one.name])
    for name, state in states.items():
        new = str(state.fields["outcome"]["new_location"]) if state.step == "unit_rolled_back" else ""
        if new and _inside(new, base) and runs.files.exists(new) and places.user_of(new) is None:
            waste.old[new] = (name, state)
    staged = sorted({str(record.fields["staged"]) for record in journal.records if "staged" in record.fields})
    left = (one for one in staged if comparable_path(one) not in kept and _inside(one, base) and disposal.is_there(one))
    waste.abandoned.extend(one for one in left if places.user_of(one) is None)
    return waste


def _old_folder(runs: PastRuns, one: SwappedUnit) -> str | None:
    """Return where a unit's old files are; None when they are gone.  Release 0.1.0 set them aside by unit."""
    if runs.disposal(one.journal.run.run_id).is_there(one.old):
        return one.old
    trash = _trash(one.journal, runs.target.base, one.name)
    return trash if runs.files.exists(trash) else None


def _inside(folder: str, base: str) -> bool:
    """Tell whether a folder is where runs put their files: nothing else is ever deleted without being known."""
    return comparable_path(folder).startswith(comparable_path(staging_folder(base)) + "/")


def _new_locations(runs: PastRuns) -> Iterator[str]:
    """Yield where every run of the table has put new files: they are in use, or old files of a later run."""
    for journal in runs.readable():
        for state in state_of_units(journal.records).values():
            if "outcome" in state.fields:
                yield str(state.fields["outcome"]["new_location"])


def _lengths(files: HadoopFiles, folder: str) -> list[int]:
    return [file.length for file in files.data_files(folder)]


def _dispose(runs: PastRuns, journal: Journal, waste: _Waste) -> None:
    """Delete what may go; what came to an old folder since the last listing is put back with it.

    Raises:
        VerificationError: somebody writes to an old folder, or points to it again.
    """
    journal.resume(runs.lock.token)
    run_id, base = journal.run.run_id, runs.target.base

    def inspect(folder: str, place: str) -> None:
        _refuse_new(runs.files, *waste.old[folder], folder, place)

    disposal = runs.disposal(run_id)
    used = disposal.delete(waste.old, inspect=inspect)
    used |= disposal.delete([one for one in waste.abandoned if one not in waste.old])
    for folder, user in used.items():
        raise VerificationError(
            f"{folder}: {user} since the last look, so it stays; run again, which leaves its unit as it is"
        )
    journal.append("run_expired", folders=waste.folders)
    for folder in (f"{staging_folder(base)}/trash-{run_id}", old_folder(base, run_id)):
        runs.files.delete_empty(folder)


def _compact(runs: PastRuns) -> None:
    """Leave one record of each run that has ended and expired; a process that ended in between is made good for."""
    store, table_id, mac = runs.store, runs.target.table_id, runs.trust.mac()
    for journal in runs.readable():
        if journal.archived:
            clear_archived(store, table_id, journal.run.run_id, mac.check)
        elif ended(journal) and expired(journal):
            archive_records(store, table_id, journal.run.run_id, journal.records, mac)


def _trash(journal: Journal, base: str, unit: str) -> str:
    """Return where a unit's old folder is renamed to before it is deleted."""
    return f"{staging_folder(base)}/trash-{journal.run.run_id}/{hashlib.sha256(unit.encode()).hexdigest()[:16]}"


def _refuse_new(files: HadoopFiles, name: str, state: UnitState, folder: str, place: str) -> None:
    now = by_place(place, list_folders(files, place))
    unit = restored(name, state.fields)
    known = known_places(unit, state) if state.swapped else {place for place, _ in new_files(state)}
    unknown = sorted(now.keys() - known)
    if unknown:
        raise VerificationError(
            f"{name}: {unknown[0]} came to {folder} while that was about to be deleted, so someone writes there; the "
            "folder is where it was, run again"
        )
