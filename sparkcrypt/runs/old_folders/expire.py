"""Expiry: deletes a run's old files once no reader needs them, after their folders were compared again.

Everything is checked before anything is deleted; then each folder is set aside and checked again before it is deleted
and recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.audit.manifest import CUT_OFF, GONE
from sparkcrypt.ledger.journal.entries import RunExpiring
from sparkcrypt.ledger.journal.journal import KINDS, Journal, has_ended, has_expired, is_over, is_paused
from sparkcrypt.ledger.unit import by_place, is_staged, list_folders, old_folder, staging_folder
from sparkcrypt.paths import comparable_path, is_same_place
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.former_homes import list_homes
from sparkcrypt.runs.old_folders.late_commits import (
    Compared,
    compare_run,
    find_suspects,
    refuse_late_commit,
)
from sparkcrypt.runs.old_folders.old_folder import (
    OldFolder,
    Writers,
    age_seconds,
    new_files,
    writers_folder_in,
)
from sparkcrypt.runs.old_folders.past_run import PastRuns, past_runs
from sparkcrypt.runs.old_folders.problems import UNDONE, Problems
from sparkcrypt.runs.old_folders.replacements import Standing, report_lost, standing_of
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.disposal import find_foreign_in
from sparkcrypt.runs.table.in_use import OtherTables, Places
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import Contents, list_contents
from sparkcrypt.text import Printable, count_of, size_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse_missing_table(runs: PastRuns) -> None:
    """Raise an error if the folder of a table without partitions is missing: nothing says that its rows should be gone.

    Raises:
        VerificationError: it names the folder.
    """
    table = runs.table.target.table
    if table is not None and not table.partition_columns and not runs.table.files.exists(table.location):
        raise VerificationError(
            f"{runs.table.target.name}: {table.location}, its folder, is missing, so queries see no row of it; nothing "
            "was deleted. If a swap was cut off, `sparkcrypt backfill` puts it back; else restore the folder"
        )


def refuse_old_in_use(runs: PastRuns, standing: Standing) -> None:
    """Raise an error if another table or partition points to an old folder, into it, or above it.

    The files of a partition inside an old folder look like a late commit, so this is checked before anything is
    reconciled.

    Raises:
        VerificationError: it names the folder and what points to it.
    """
    for old in standing.settled:
        for location in old.locations:
            user = standing.places.user_of(location, but=old.name)
            if user is not None:
                raise VerificationError(
                    f"{runs.table.target.name}: {old.name}: {location} holds old files, and {user}, which is in it, "
                    "above it or the same; point that to where the new files are, or to a copy of its files, with "
                    "ALTER TABLE … SET LOCATION, then expire; nothing was deleted"
                )


def refuse_earlier_writers(runs: PastRuns, standing: Standing, journals: Iterable[Journal]) -> None:
    """Raise an error if a writer that was planned before the swap may still commit to an old folder.

    Its rows would be lost, since no command compares the folder after its expiry.  The same is checked for writers that
    were planned before a swap was undone, and for the folder that was in use until then.

    Raises:
        VerificationError: it names the writer's folder.
    """
    writers = Writers(runs.table.files, runs.table.target.base)
    for old in standing.settled:
        location = old.status.unit.location
        if not is_same_place(location, old.status.new_location):  # else the writer commits to the new files
            _refuse_earlier_writer(runs, writers, old.name, location, old.swap_time)
    for old in (old for journal in journals for old in OldFolder.list_undone(journal)):
        if old.undone is not None:
            _refuse_earlier_writer(runs, writers, old.name, old.location, old.undone.records[-1].time)


def _refuse_earlier_writer(runs: PastRuns, writers: Writers, name: str, folder: str, since: str) -> None:
    """Raise an error if a writer that may have been planned before a moment may commit to a folder.

    Raises:
        VerificationError: it names the writer's folder.
    """
    began = int(datetime.fromisoformat(since).timestamp() * 1000)
    writing = writers.find_earlier(folder, began)
    if writing is not None:
        raise VerificationError(f"{runs.table.target.name}: {name}: {may_commit(writing, folder)}; nothing was deleted")


def may_commit(writing: str, folder: str) -> str:
    """Return the message that a writer's folder exists, with the next step."""
    return (
        f"{writing} is there, so a writer that began before the swap may still commit to {folder}, where nobody would "
        "look for its rows any more; expire again when it has ended; delete that folder if its writer was killed"
    )


@dataclass(slots=True)
class Waste:
    """Folders of one run that may be deleted.

    Attributes:
        old: folder of old files -> its unit's old folder, by the journal.
        abandoned: folders that failed attempts left.
        refused: the units whose old files stay.
    """

    old: dict[str, OldFolder] = field(default_factory=dict)
    abandoned: list[str] = field(default_factory=list)
    refused: tuple[str, ...] = ()

    @property
    def folders(self) -> list[str]:
        """All folders, each once."""
        return list(dict.fromkeys([*self.old, *self.abandoned]))


def leave_held(files: HadoopFiles, waste: Waste) -> dict[str, str]:
    """Take out of the waste what has anything beside its data that is no run's; the folders of such a unit all stay.

    Returns:
        Unit, or folder of a failed attempt -> why its files stay.
    """
    held = {folder: why for folder in waste.folders if (why := find_foreign_in(files, folder, folder)) is not None}
    units = {waste.old[folder].name: why for folder, why in held.items() if folder in waste.old}
    attempts = {folder: why for folder, why in held.items() if folder not in waste.old}
    waste.old = {folder: old for folder, old in waste.old.items() if old.name not in units}
    waste.abandoned = [folder for folder in waste.abandoned if folder not in attempts]
    waste.refused = tuple(sorted({*waste.refused, *units}))
    return units | attempts


def dispose(runs: PastRuns, journal: Journal, waste: Waste) -> dict[str, str]:
    """Delete the folders that may go; a folder to which files were added since its last listing is put back.

    Returns:
        Unit -> what to do, of the units whose old folder a writer re-created meanwhile; later calls check them again.

    Raises:
        VerificationError: a writer has added files to a folder or may do so, or a table points to a folder again.
    """
    journal.resume(runs.lock.token)
    files, run_id = runs.table.files, journal.run.run_id
    bases = {runs.table.target.base, *(old.status.base for old in OldFolder.list_of(journal))}
    undone = {old.location: old for old in OldFolder.list_undone(journal)}
    writers = Writers(files, runs.table.target.base)

    def inspect(folder: str, place: str) -> None:
        old = waste.old[folder]
        _refuse_unknown(files, old.name, _list_known_places(old), folder, place)
        _refuse_writer(runs, writers, old, folder, place)

    def inspect_undone(folder: str, place: str) -> None:
        if folder in undone:
            _refuse_unknown(files, undone[folder].name, undone[folder].known_of_undone(), folder, place)

    disposal = runs.disposal(run_id)
    journal.write(RunExpiring(tuple(waste.folders)))
    used = replace(disposal, asks_all=True).delete(waste.old, inspect=inspect)
    used |= disposal.delete([folder for folder in waste.abandoned if folder not in waste.old], inspect=inspect_undone)
    for folder, user in used.items():
        raise VerificationError(
            f"{folder}: {user}, since the last look, so it stays; run again, which leaves its unit as it is"
        )
    anew = {folder: old.name for folder, old in waste.old.items() if old.status.swapped and files.exists(folder)}
    units_left = sorted({*waste.refused, *anew.values()})
    fields = {"units_left": units_left} if units_left else {}
    journal.append("run_expired", folders=[folder for folder in waste.folders if folder not in anew], **fields)
    for base in sorted(bases):
        for folder in (f"{staging_folder(base)}/trash-{run_id}", old_folder(base, run_id)):
            files.delete_empty(folder)
    return {
        name: f"{runs.table.target.name}: {name}: a writer that was planned before the swap made {folder} anew while "
        "its old files were deleted; run again when it has ended, and decide what it wrote there"
        for folder, name in anew.items()
    }


def _refuse_writer(runs: PastRuns, writers: Writers, old: OldFolder, folder: str, place: str) -> None:
    """Raise an error if a writer is at work in a folder that was set aside, or at its former path.

    Raises:
        VerificationError: it names the writer's folder.
    """
    writing = writers_folder_in(runs.table.files, place)
    if writing is not None:
        writing = f"{folder}/{writing.rpartition('/')[2]}"
        raise VerificationError(
            f"{runs.table.target.name}: {old.name}: {may_commit(writing, folder)}; it is where it was"
        )
    location = old.status.unit.location
    if old.status.swapped and not is_same_place(location, old.status.new_location):
        _refuse_earlier_writer(runs, writers, old.name, location, old.swap_time)


def _list_known_places(old: OldFolder) -> Collection[str]:
    """Return the paths of the files that may be in a folder of a unit, by its journal."""
    if old.status.swapped:
        return old.known_places()
    if old.status.resolved is not None and old.status.resolved.given_up:
        return old.status.resolved.files_in("old")
    return {place for place, _ in new_files(old.status)}


def _refuse_unknown(files: HadoopFiles, name: str, known: Collection[str], folder: str, place: str) -> None:
    unknown = sorted(by_place(place, list_folders(files, place)).keys() - set(known))
    if unknown:
        raise VerificationError(
            f"{name}: {unknown[0]} came to {folder} while that was about to be deleted, so someone writes there; the "
            "folder is where it was, run again"
        )


_KEEPS_OLD = (UNDONE, CUT_OFF, GONE)
"""The kinds of problems for which a unit's old files stay although it is not among those that may lose them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(Printable, JsonObject, json_names={"total_bytes": "bytes"}):
    """The result of an expiry.

    Attributes:
        table: the table's name.
        run_ids: the runs whose old files were to be deleted.
        folders: the folders that were deleted, or would be.
        files: the number of data files in them.
        total_bytes: the length of these files in bytes.
        carried: the number of late commits' files that were reconciled.
        superseded: unit -> why its old folder stays.
        refused: unit, or folder of a failed attempt -> why its files stay: a problem is open, its late commits could
            not be reconciled, its folder cannot be listed, or something lies beside them that is no run's.
        summaries: the summaries of footers beside data files (``_metadata``) that went with them, or would.
        homes: unit -> its former home, of the units that runs have taken away from there.
        younger: the number of runs that keep their old files since they are too young.
        dry_run: whether nothing was changed.
        unread: the runs whose records are unreadable or not trusted, each with the reason; their old files stay.
        unpinned: a note on swapped units without a pin in the metastore; empty if there are none.
    """

    table: str
    run_ids: tuple[str, ...]
    folders: tuple[str, ...]
    files: int
    total_bytes: int
    carried: int
    superseded: Mapping[str, str]
    refused: Mapping[str, str]
    summaries: tuple[str, ...]
    homes: Mapping[str, str]
    younger: int
    dry_run: bool
    unread: tuple[str, ...]
    unpinned: tuple[str, ...]

    def to_text(self) -> str:
        """Return a line for the whole, and one for each folder and for each that stays, with the reason."""
        carried = f"; {count_of(self.carried, 'file')} of late commits reconciled before" if self.carried else ""
        verb = "would be deleted" if self.dry_run else "deleted"
        amount = f"{count_of(self.files, 'file')}, {size_of(self.total_bytes)}"
        what = f"{amount}, in {count_of(len(self.folders), 'folder')}"
        younger = "; younger runs keep their old files: see --older-than" if self.younger else ""
        return "\n".join(
            [
                f"{self.table}: {count_of(len(self.run_ids), 'run')}: {what} {verb}{carried}{younger}",
                *(f"  {folder}" for folder in self.folders),
                *(f"  {file}: statistics in plaintext, {verb} too" for file in self.summaries),
                *(f"left as it is: {unit}: {why}" for unit, why in self.superseded.items()),
                *(f"refused: {why}" for why in self.refused.values()),
                *(f"warning: {line}" for line in (*self.unread, *self.unpinned)),
                *self._offer_home(),
            ]
        )

    def _offer_home(self) -> list[str]:
        """Return what brings the units that are away from their former homes back, for jobs that name folders."""
        if not self.homes:
            return []
        first = next(iter(self.homes.values()))
        more = f" and {len(self.homes) - 1:,} more" if len(self.homes) > 1 else ""
        return [
            f"away from {first}{more}: if jobs use such a folder by path, `sparkcrypt encrypt --home --table "
            f"{self.table}` brings the files back, once the old ones have expired"
        ]


@dataclass(frozen=True, slots=True)
class ExpiryOptions:
    """The options of an expiry.

    Attributes:
        older_than_seconds: a run that swapped its last unit more recently keeps its old files.
        dry_run: report, and change nothing.
        progress: receives progress updates.
    """

    older_than_seconds: float = 0.0
    dry_run: bool = False
    progress: Progress | None = None


def expire_run(
    spark: SparkSession,
    table: str,
    policy: Policy,
    *,
    run_id: str | None = None,
    options: ExpiryOptions | None = None,
    others: OtherTables | None = None,
) -> Expired:
    """Delete the old files of runs that ended, or stopped at their budget.

    Late commits among them are reconciled first.  A unit keeps its old files if its old folder is in use again, or if
    it has an open problem.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: the policy under which the runs were made.
        run_id: the id of the run; every run of the table by default.
        options: which runs keep their old files, and whether others only would lose theirs.
        others: the folders of other tables, which the tables of a command share; by default, listed when first needed.

    Raises:
        ConfigError: the run does not exist, or was killed and may have half-done units.
        VerificationError: new files are missing, something else uses an old folder or may still write to it, or every
            unit with old files has an open problem.  This is checked before anything is deleted, and the use of each
            folder again right before its deletion.
        RunConflictError: a run holds the table.
    """
    options = options or ExpiryOptions()
    dry_run = options.dry_run
    with past_runs(spark, table, policy, "expire", options.progress, others) as runs:
        all_journals = _journals(runs, run_id)
        journals = [journal for journal in all_journals if age_seconds(journal) >= options.older_than_seconds]
        refuse_missing_table(runs)
        standing = standing_of(runs, journals)
        refuse_old_in_use(runs, standing)
        refuse_earlier_writers(runs, standing, journals)
        problems = runs.problems()
        looked = [
            (journal, *_reconcile_run(runs, problems, journal, standing, dry_run=dry_run)) for journal in journals
        ]
        refused = {unit: why for _, _, units in looked for unit, why in units.items()}
        kept = {comparable_path(location) for location in _new_locations(runs)}
        wastes = [
            (journal, _find_waste(runs, journal, standing, Waste(refused=tuple(sorted(units))), kept, dry_run=dry_run))
            for journal, _, units in looked
        ]
        for _, waste in wastes:
            refused |= leave_held(runs.table.files, waste)
        if refused and not any(waste.old for _, waste in wastes):
            raise VerificationError(next(iter(refused.values())))
        carried = sum(count for _, count, _ in looked)
        folders = tuple(dict.fromkeys(folder for _, waste in wastes for folder in waste.folders))
        pins = tuple(runs.table.trust.list_pins(None))
        if folders:
            runs.table.trust.refuse_lost_pins(pins)
        going = {folder: _look_into(runs.table.files, folder) for folder in folders}
        sizes = [file.length for contents in going.values() for file in contents.data]
        if not dry_run:
            for journal, waste in wastes:
                refused |= dispose(runs, journal, waste)
            _compact(runs)
        return Expired(
            table=runs.table.target.name,
            run_ids=tuple(journal.run.run_id for journal in journals),
            folders=folders,
            files=len(sizes),
            total_bytes=sum(sizes),
            carried=carried,
            superseded=dict(standing.superseded),
            refused=refused,
            summaries=_summaries(going),
            homes=list_homes(runs.table),
            younger=len(all_journals) - len(journals),
            dry_run=dry_run,
            unread=runs.table.trust.unread_runs(),
            unpinned=runs.table.trust.unpinned_units(pins),
        )


def _journals(runs: PastRuns, run_id: str | None) -> list[Journal]:
    ids, name = runs.ids(), runs.table.target.name
    if run_id is not None and run_id not in ids:
        raise ConfigError(f"{name}: run {run_id} is not known; allowed: {', '.join(ids)}")
    opened = [runs.journal(run_id)] if run_id is not None else list(runs.list_readable())
    unfinished = [journal.run.run_id for journal in opened if not has_ended(journal) and not is_paused(journal)]
    if unfinished:
        raise ConfigError(f"{name}: run {unfinished[0]} is unfinished; run the job again to finish it, then expire")
    return [journal for journal in opened if not journal.archived and (not has_expired(journal) or run_id is not None)]


def _reconcile_run(
    runs: PastRuns, problems: Problems, journal: Journal, standing: Standing, *, dry_run: bool
) -> tuple[int, dict[str, str]]:
    """Reconcile late commits in a run's old folders; a dry run only counts them.

    Returns:
        The number of files, and unit -> why its old files stay.

    Raises:
        VerificationError: the record of a problem is damaged, so it is not known which unit's old files must stay.
    """
    units = {unit.name for unit in standing.of(journal)}
    with runs.rewriter(journal) as rewriter:
        lost = () if dry_run else report_lost(rewriter, problems)
        unlisted: list[FailedUnit] = []
        suspects = find_suspects(rewriter, units, unlisted, finish=False) if dry_run else []
        late = sum(len(suspect.changes.places) for suspect in suspects)
        compared = Compared(late) if dry_run else compare_run(rewriter, problems, units)
        open_problems = problems.open()
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
    runs: PastRuns, journal: Journal, standing: Standing, waste: Waste, kept: set[str], *, dry_run: bool
) -> Waste:
    """Return the folders of a run that may be deleted.

    Args:
        runs: the table's runs.
        journal: the run's journal.
        standing: which swapped units may lose their old files.
        waste: names the units whose old files stay; receives the folders.
        kept: the folders that any run put into use, in comparable form.
        dry_run: do not check old folders for unknown files.

    Raises:
        VerificationError: an old folder contains files that its run does not know.
    """
    disposal, places = runs.disposal(journal.run.run_id), standing.places
    statuses = journal.statuses()  # read again, since files may have been reconciled
    for old in (old for old in standing.of(journal) if old.name not in waste.refused):
        now = replace(old, status=statuses[old.name])
        if disposal.is_there(old.location):
            if not dry_run and runs.table.files.exists(old.location):
                refuse_late_commit(runs.table.files, now)
            waste.old[old.location] = now
        emptied = (place for place in old.locations if place != old.location)  # its old files were moved from there
        for place in emptied:
            if comparable_path(place) not in standing.in_use and disposal.is_there(place):
                waste.old[place] = now
    waste.old.update(_list_given_up(runs, journal, places))
    records = (
        record
        for record in journal.records
        if "staged" in record.fields and record.fields.get("unit") not in waste.refused
    )
    staged = sorted({str(record.fields["staged"]) for record in records})
    left = (
        folder
        for folder in staged
        if comparable_path(folder) not in kept and is_staged(folder) and disposal.is_there(folder)
    )
    waste.abandoned.extend(folder for folder in left if places.user_of(folder) is None)
    return waste


def _list_given_up(runs: PastRuns, journal: Journal, places: Places) -> Iterator[tuple[str, OldFolder]]:
    """Yield the folders of files that a rollback, or a decision on a swap that was cut off, has put out of use."""
    disposal = runs.disposal(journal.run.run_id)
    for status in journal.statuses().values():
        new = status.new_location if status.step == "unit_rolled_back" else ""
        given_up = status.resolved.given_up if status.resolved is not None and not status.swapped else ""
        if new and is_staged(new) and runs.table.files.exists(new) and places.user_of(new) is None:
            yield new, OldFolder(journal, status)
        if given_up and disposal.is_there(given_up):
            yield given_up, OldFolder(journal, status)


def _new_locations(runs: PastRuns) -> Iterator[str]:
    """Yield the folders into which the table's runs put new files: these are in use, or old files of a later run."""
    for journal in runs.list_readable():
        for status in journal.statuses().values():
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
    """Pack older records of the table's log, up to the first of a run that may still have old files.

    Lists of files are left out then, so a run keeps them while an earlier one has old files: these are compared by what
    became of their rows.  A log with a gap that nobody has given up stays as it is.
    """
    log = runs.table.trust.log()
    over = {journal.run.run_id for journal in runs.list_readable() if is_over(journal)}
    kept = (record.number for record in log.records if record.kind in KINDS and record.run_id not in over)
    if not log.open_gaps:
        log.pack(min(kept, default=None))
