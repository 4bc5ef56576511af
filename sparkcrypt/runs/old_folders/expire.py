"""Deletion of a run's old files once no reader needs them, after their folders were compared again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.audit.audit import pack_audit
from sparkcrypt.ledger.journal.journal import Journal, archive_records, clear_archived
from sparkcrypt.ledger.journal.unit_status import has_ended, has_expired, is_paused, status_of_units
from sparkcrypt.ledger.unit import is_staged
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.awaiting_expiry import age_seconds
from sparkcrypt.runs.old_folders.changed_folders import list_suspects
from sparkcrypt.runs.old_folders.check_replacements import Standing, SwappedUnit, report_lost, standing_of
from sparkcrypt.runs.old_folders.compare_with_journal import Compared, compare_run, problems_of
from sparkcrypt.runs.old_folders.delete_expired import Waste, dispose, leave_held
from sparkcrypt.runs.old_folders.expire_refusals import (
    refuse_earlier_writers,
    refuse_missing_table,
    refuse_old_in_use,
    refuse_unaudited,
)
from sparkcrypt.runs.old_folders.former_homes import list_homes
from sparkcrypt.runs.old_folders.past_run import PastRuns, past_runs
from sparkcrypt.runs.old_folders.problems import CUT_OFF, GONE, UNDONE
from sparkcrypt.runs.old_folders.reconcile import old_locations, refuse_late_commit
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.in_use import Places
from sparkcrypt.runs.table.open_table import Progress
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import Contents, list_contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEEPS_OLD = (UNDONE, CUT_OFF, GONE)
"""The kinds of problems for which a unit's old files stay although it is not among those that may lose them."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of an expiry.

    Attributes:
        table: the table's name.
        run_ids: the runs whose old files were to be deleted.
        folders: the folders that were deleted, or would be.
        files: the number of data files in them.
        total_bytes: the length of these files in bytes.
        dry_run: whether nothing was changed.
        carried: the number of late commits' files that were reconciled.
        unread: the runs whose records are unreadable or not trusted, each with the reason; their old files stay.
        superseded: unit -> why its old folder stays.
        younger: the number of runs that keep their old files since they are too young.
        refused: unit, or folder of a failed attempt -> why its files stay: a problem is open, its late commits could
            not be reconciled, its folder cannot be listed, or something lies beside them that is no run's.
        summaries: the summaries of footers beside data files (``_metadata``) that went with them, or would.
        homes: unit -> its former home, of the units that runs have taken away from there.
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
    refused: Mapping[str, str] = field(default_factory=dict)
    summaries: tuple[str, ...] = ()
    homes: Mapping[str, str] = field(default_factory=dict)

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
            "refused": dict(self.refused),
            "summaries": list(self.summaries),
            "homes": dict(self.homes),
            "younger": self.younger,
            "dry_run": self.dry_run,
            "unread": list(self.unread),
        }


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

    Late commits among them are reconciled first.  A unit keeps its old files if its old folder is in use again, or if
    it has an open problem.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: the policy under which the runs were made.
        run_id: the id of the run; every run of the table by default.
        older_than_seconds: a run that swapped its last unit more recently keeps its old files.
        dry_run: report, and change nothing.
        progress: receives progress updates.

    Raises:
        ConfigError: the run does not exist, or was killed and may have half-done units.
        VerificationError: new files are missing, something else uses an old folder or may still write to it, or every
            unit with old files has an open problem.  This is checked before anything is deleted, and the use of each
            folder again right before its deletion.
        RunConflictError: a run holds the table.
    """
    with past_runs(spark, table, policy, "expire", progress) as runs:
        all_journals = _journals(runs, run_id)
        journals = [journal for journal in all_journals if age_seconds(journal) >= older_than_seconds]
        refuse_missing_table(runs)
        places, standing = runs.table.in_use.look(), standing_of(runs, journals)
        refuse_old_in_use(runs, places, standing)
        refuse_earlier_writers(runs, standing, journals)
        looked = [(journal, *_reconcile_run(runs, journal, standing, dry_run=dry_run)) for journal in journals]
        refused = {unit: why for _, _, units in looked for unit, why in units.items()}
        kept = {comparable_path(location) for location in _new_locations(runs)}
        wastes = [
            (journal, _find_waste(runs, journal, standing, places, kept, tuple(sorted(units)), dry_run=dry_run))
            for journal, _, units in looked
        ]
        for _, waste in wastes:
            refused |= leave_held(runs.table.files, waste)
        if refused and not any(waste.old for _, waste in wastes):
            raise VerificationError(next(iter(refused.values())))
        carried = sum(count for _, count, _ in looked)
        folders = tuple(dict.fromkeys(folder for _, waste in wastes for folder in waste.folders))
        going = {folder: _look_into(runs.table.files, folder) for folder in folders}
        sizes = [file.length for contents in going.values() for file in contents.data]
        if not dry_run:
            for journal, waste in wastes:
                refused |= dispose(runs, journal, waste)
            _compact(runs)
        ids = tuple(journal.run.run_id for journal in journals)
        superseded, younger, unread = (
            dict(standing.superseded),
            len(all_journals) - len(journals),
            runs.table.trust.unread_runs(),
        )
        name = runs.table.target.name
        sums = (len(sizes), sum(sizes))
        return Expired(
            name,
            ids,
            folders,
            *sums,
            dry_run,
            carried,
            unread,
            superseded,
            younger,
            refused,
            _summaries(going),
            list_homes(runs.table),
        )


def _journals(runs: PastRuns, run_id: str | None) -> list[Journal]:
    ids, name = runs.ids(), runs.table.target.name
    if run_id is not None and run_id not in ids:
        raise ConfigError(f"{name}: run {run_id} is not known; allowed: {', '.join(ids)}")
    opened = [runs.journal(run_id)] if run_id is not None else list(runs.list_readable())
    for journal in opened:
        refuse_unaudited(runs, journal)
    unfinished = [journal.run.run_id for journal in opened if not has_ended(journal) and not is_paused(journal)]
    if unfinished:
        raise ConfigError(f"{name}: run {unfinished[0]} is unfinished; run the job again to finish it, then expire")
    return [journal for journal in opened if not journal.archived and (not has_expired(journal) or run_id is not None)]


def _reconcile_run(
    runs: PastRuns, journal: Journal, standing: Standing, *, dry_run: bool
) -> tuple[int, dict[str, str]]:
    """Reconcile late commits in a run's old folders; a dry run only counts them.

    Returns:
        The number of files, and unit -> why its old files stay.

    Raises:
        VerificationError: the record of a problem is damaged, so it is not known which unit's old files must stay.
    """
    units = {unit.name for unit in standing.of(journal)}
    with runs.rewriter(journal) as rewriter:
        lost = () if dry_run else report_lost(rewriter)
        unlisted: list[FailedUnit] = []
        changes = list_suspects(rewriter, units, unlisted) if dry_run else []
        compared = Compared(sum(len(found.places) for _, found in changes)) if dry_run else compare_run(rewriter, units)
        open_problems = problems_of(rewriter).open()
    for problem in open_problems:
        if not problem.run_id:
            raise VerificationError(problem.message)
    of_run = [problem for problem in open_problems if problem.run_id == journal.run.run_id]
    concerned = {*units, *standing.superseded}
    keeps = [problem for problem in of_run if problem.unit in concerned or problem.kind in _KEEPS_OLD]
    refused = {problem.unit: problem.message for problem in keeps}
    failed = {unit.name: unit.message for unit in (*lost, *compared.failed, *unlisted)}
    return compared.carried, standing.list_refused(journal) | failed | refused


def _find_waste(
    runs: PastRuns,
    journal: Journal,
    standing: Standing,
    places: Places,
    kept: set[str],
    refused: tuple[str, ...],
    *,
    dry_run: bool,
) -> Waste:
    """Return the folders of a run that may be deleted.

    Args:
        runs: the table's runs.
        journal: the run's journal.
        standing: which swapped units may lose their old files.
        places: the folders in use.
        kept: the folders that any run put into use, in comparable form.
        refused: the units whose old files stay.
        dry_run: do not check old folders for unknown files.

    Raises:
        VerificationError: an old folder contains files that its run does not know.
    """
    waste, disposal = Waste(refused=refused), runs.disposal(journal.run.run_id)
    statuses = status_of_units(journal.records)  # read again, since files may have been reconciled
    for unit in (unit for unit in standing.of(journal) if unit.name not in refused):
        if disposal.is_there(unit.old):
            if not dry_run and runs.table.files.exists(unit.old):
                refuse_late_commit(runs.table.files, unit.name, statuses[unit.name])
            waste.old[unit.old] = (unit.name, statuses[unit.name])
        waste.old.update((left, (unit.name, statuses[unit.name])) for left in _list_emptied_folders(runs, unit))
    for name, status in statuses.items():
        new = status.new_location if status.step == "unit_rolled_back" else ""
        given_up = status.resolved.given_up if status.resolved is not None and not status.swapped else ""
        if new and is_staged(new) and runs.table.files.exists(new) and places.user_of(new) is None:
            waste.old[new] = (name, status)
        if given_up and disposal.is_there(given_up):
            waste.old[given_up] = (name, status)
    records = (
        record for record in journal.records if "staged" in record.fields and record.fields.get("unit") not in refused
    )
    staged = sorted({str(record.fields["staged"]) for record in records})
    left = (
        folder
        for folder in staged
        if comparable_path(folder) not in kept and is_staged(folder) and disposal.is_there(folder)
    )
    waste.abandoned.extend(folder for folder in left if places.user_of(folder) is None)
    return waste


def _list_emptied_folders(runs: PastRuns, unit: SwappedUnit) -> Iterator[str]:
    """Yield the folders from which a unit's old files were moved, if they exist again."""
    disposal, now = runs.disposal(unit.journal.run.run_id), {*unit.in_use, unit.old}
    others = (folder for folder in old_locations(unit.status) if folder not in now)
    return (folder for folder in others if disposal.is_there(folder))


def _new_locations(runs: PastRuns) -> Iterator[str]:
    """Yield the folders into which the table's runs put new files: these are in use, or old files of a later run."""
    for journal in runs.list_readable():
        for status in status_of_units(journal.records).values():
            if "outcome" in status.fields:
                yield status.new_location


def _look_into(files: HadoopFiles, folder: str) -> Contents:
    return list_contents(files, files.status(folder).path) if files.exists(folder) else Contents((), ())


def _summaries(going: Mapping[str, Contents]) -> tuple[str, ...]:
    """Return the paths of the summaries of footers in folders."""
    return tuple(
        f"{folder.rstrip('/')}/{entry.path}"
        for folder, contents in going.items()
        for entry in contents.beside
        if entry.kind == "summary"
    )


def _compact(runs: PastRuns) -> None:
    """Archive ended and expired runs as one record each, and pack the table's audit; finish what a killed call began.

    A run keeps its lists of files while an earlier one has old files: these are compared by what became of their rows.
    """
    store, table_id, mac = runs.table.store, runs.table.target.table_id, runs.table.trust.mac()
    needed = False
    for journal in runs.list_readable():
        if journal.archived:
            clear_archived(store, table_id, journal.run.run_id, mac.check)
        elif not has_expired(journal):
            needed = True
        elif has_ended(journal) and not needed:
            archive_records(store, table_id, journal.run.run_id, journal.records, mac)
    pack_audit(store, table_id, mac)
