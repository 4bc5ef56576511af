"""Rollback of a run: puts its units' old files back into use, if they still exist and no rows were written since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.journal.entries import RunFinished, RunRolledBack, UnitRolledBack, UnitRollingBack
from sparkcrypt.ledger.journal.journal import Journal, has_ended, is_over
from sparkcrypt.ledger.new_files import Whereabouts
from sparkcrypt.ledger.unit import by_place, list_folders
from sparkcrypt.log_lines import log_about
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.late_commits import refuse_replaced
from sparkcrypt.runs.old_folders.old_folder import OldFolder, list_reconciled_files, new_files, proven_files
from sparkcrypt.runs.old_folders.past_run import PastRuns, past_runs
from sparkcrypt.runs.old_folders.replacements import describe_cut_off, open_cut_off
from sparkcrypt.runs.rewrite.context import append_audit
from sparkcrypt.runs.rewrite.recover import recover
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table.disposal import refuse_moving
from sparkcrypt.runs.table.in_use import refuse_used
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.table_index import carry_index, explain_stale
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.text import Printable, count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RolledBack(Printable, JsonObject):
    """The result of a rollback; ``index`` is the state of the table's store for data skipping, as in a run's report."""

    table: str
    run_id: str
    units: tuple[str, ...]
    files: int
    dry_run: bool
    index: Mapping[str, Any] | None = None

    def to_text(self) -> str:
        """Return a line for the whole, and one for each unit."""
        verb = "would be put back" if self.dry_run else "put back"
        what = f"{count_of(len(self.units), 'unit')}, {count_of(self.files, 'file')}"
        stale = [f"warning: {line}" for line in explain_stale(self.table, self.index)]
        lines = [f"{self.table}: run {self.run_id}: {what} {verb}", *(f"  {unit}" for unit in self.units), *stale]
        return "\n".join(lines)


def rollback_run(
    spark: SparkSession,
    table: str,
    policy: Policy,
    run_id: str,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RolledBack:
    """Put a run's old files back into use; the new ones stay until ``expire``.

    Every unit is checked before the first one is changed.  Old files have the keys that they had before, or none, so
    the table drifts from its plan again, and readers may refuse it if it requires encryption.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: the policy under which the run was made.
        run_id: the id of the run.
        dry_run: report, and change nothing.
        progress: receives progress updates.

    Raises:
        ConfigError: the run does not exist, or it wrote a copy.
        VerificationError: old files are missing or changed, or rows were written since the run; no unit was rolled
            back.
        RunConflictError: a run holds the table.
    """
    with past_runs(spark, table, policy, "roll back", progress) as runs:
        if run_id not in runs.ids():
            raise ConfigError(f"{runs.table.target.name}: run {run_id} is not known; allowed: {', '.join(runs.ids())}")
        journal = runs.journal(run_id)
        if is_over(journal):
            raise VerificationError(
                f"{runs.table.target.name}: the old files of run {run_id} have expired; nothing was changed"
            )
        with log_about(run=run_id, table=runs.table.target.name), runs.rewriter(journal) as rewriter:
            return _roll_back(runs, rewriter, journal, dry_run=dry_run)


def _roll_back(runs: PastRuns, rewriter: UnitRewriter, journal: Journal, *, dry_run: bool) -> RolledBack:
    if rewriter.swap.copies:
        raise ConfigError(
            f"run {journal.run.run_id} wrote a copy and left its source as it was; nothing is to roll back"
        )
    if not dry_run:
        journal.resume(runs.lock.token)
        if not has_ended(journal):
            open_cut_off(rewriter, recover(rewriter)).refuse_problems()
    runs.table.trust.refuse_lost_pins()
    olds = list(OldFolder.list_of(journal))
    runs.table.trust.forget_audit()  # recovery may have added entries
    for old in olds:
        if not _is_back_already(rewriter, old):
            refuse_change(rewriter, old)
    _refuse_used(runs, rewriter, olds)
    index, files = None, sum(len(old.status.unit.files) for old in olds)
    if not dry_run:
        every = journal.statuses().values()
        for old in reversed(olds):
            roll_back_unit(rewriter, old)
        if not has_ended(journal):
            journal.write(RunFinished("rolled back"))
        back = [status for status in every if status.swapped or status.step == "unit_rolled_back"]
        index = carry_index(runs.table.target, runs.table.policy, runs.table.store, runs.table.files, back, back=True)
        journal.write(RunRolledBack(tuple(old.name for old in olds)))
    units = tuple(sorted(old.name for old in olds))
    return RolledBack(runs.table.target.name, journal.run.run_id, units, files, dry_run, index)


def _refuse_used(runs: PastRuns, rewriter: UnitRewriter, olds: Iterable[OldFolder]) -> None:
    """Raise an error if a table or partition points to an old folder that has to be renamed back.

    Raises:
        VerificationError: it names the folder and what points to it; nothing was changed.
    """
    renamed = [old for old in olds if rewriter.swap.same_folder or old.status.step == "unit_moved"]
    if renamed:
        places = runs.table.in_use.look()
        for old in renamed:
            refuse_used(places, old.name, old.location, "holds old files that are to be renamed back")


def refuse_change(rewriter: UnitRewriter, old: OldFolder) -> None:
    """Raise an error if a unit's old files are incomplete, or rows were written to it since the run.

    Raises:
        VerificationError: it names the file.
    """
    unit, files = old.status.unit, rewriter.run.table.files
    refuse_replaced(rewriter, old.status)
    if rewriter.swap.same_folder:
        refuse_moving(files, unit)
    refuse_later(rewriter, old)
    there = by_place(old.location, list_folders(files, old.location))
    for place, file in by_place(unit.location, unit.folders).items():
        if place not in there or there[place].length != file.length:
            raise VerificationError(
                f"{old.name}: the old file {place} is not at {old.location} any more, or changed; it has expired, or "
                "someone deleted it; nothing was changed"
            )


def refuse_later(rewriter: UnitRewriter, old: OldFolder) -> None:
    """Raise an error if files were added to a unit since the run: putting old files into use would lose their rows.

    Raises:
        VerificationError: it names the file.
    """
    status, new_location = old.status, old.status.new_location
    now = by_place(new_location, list_folders(rewriter.run.table.files, new_location))
    made_files = dict(new_files(status)) | dict(list_reconciled_files(status.carrying))
    later = sorted(now.keys() - made_files.keys())
    if later:
        raise VerificationError(
            f"{old.name}: {later[0]} was written after the run, and a rollback would lose its rows; nothing was changed"
        )


def roll_back_unit(rewriter: UnitRewriter, old: OldFolder) -> None:
    """Put one unit's old files back into use, unless a killed rollback has; record it in journal and audit."""
    run, name, status = rewriter.run, old.name, old.status
    unit, outcome = status.unit, status.outcome
    run.table.progress.step(name, "rolling back")
    run.lock.check()
    begun = run.journal.write(UnitRollingBack(name))
    if not _is_back_already(rewriter, old):
        catalog, table = Catalog(run.table.spark), run.table.target.table
        statistics = catalog.statistics(table) if table else None
        if comparable_path(outcome.old_location) != comparable_path(unit.location) and not rewriter.swap.same_folder:
            run.table.files.rename(
                outcome.old_location, unit.location
            )  # the run had moved them out of the table's folder
        rewriter.swap.undo(run.pin(proven_files(status), begun))
        if table and statistics is not None:
            encrypted = frozenset(column.leaf.logical[0] for column in run.table.target.plan.encrypted)
            catalog.restore_statistics(table, statistics, encrypted)
    evidence = status.evidence
    changes = [
        {**change, "sources": change["targets"], "targets": change["sources"]} for change in evidence.get("changes", ())
    ]
    append_audit(
        run, "roll back", outcome.engine, {"unit": name, "files": len(unit.files)}, evidence.get("digests"), changes
    )
    run.journal.write(UnitRolledBack(name))


def _is_back_already(rewriter: UnitRewriter, old: OldFolder) -> bool:
    """Tell whether a rollback that was killed has already put the unit's old files back into use.

    Raises:
        VerificationError: it was killed between two renames, and something came to the unit's folder since.
    """
    status = old.status
    if status.step != "unit_rolling_back":
        return False
    new = proven_files(status)
    rewriter.swap.put_back(new)
    if rewriter.locate(new) is not Whereabouts.STAGED:
        return False
    if rewriter.swap.is_begun(new):
        message = describe_cut_off(old.name, status.new_location, status.old_location, status.staged)
        raise VerificationError(f"{message}; run `sparkcrypt backfill`, which opens a problem of it")
    return True
