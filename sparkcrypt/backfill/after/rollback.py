"""Rollback of a run: puts its units' old files back into use, if they still exist and no rows were written since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.index.carry_names import carry_index
from sparkcrypt.backfill.journal.entries import RunFinished
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.later_entries import RunRolledBack, UnitRolledBack, UnitRollingBack
from sparkcrypt.backfill.journal.run_steps import has_ended
from sparkcrypt.backfill.journal.unit_steps import UnitState, state_of_units
from sparkcrypt.backfill.old_files.past_run import PastRuns, past_runs
from sparkcrypt.backfill.old_files.reconcile import list_reconciled_files, new_files, refuse_replaced
from sparkcrypt.backfill.report.progress import Progress
from sparkcrypt.backfill.target.in_use import refuse_used
from sparkcrypt.backfill.target.record import by_place
from sparkcrypt.backfill.target.unit import Unit, list_folders, refuse_writers_at_work
from sparkcrypt.backfill.work.ledger import append_audit
from sparkcrypt.backfill.work.recover import recover
from sparkcrypt.backfill.work.runner import Runner
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The result of a rollback; ``index`` is the state of the table's store for data skipping, as in a run's report."""

    table: str
    run_id: str
    units: tuple[str, ...]
    files: int
    dry_run: bool
    index: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "run_id": self.run_id,
            "units": list(self.units),
            "files": self.files,
            "dry_run": self.dry_run,
            "index": dict(self.index) if self.index else None,
        }


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
            raise ConfigError(f"{runs.target.name}: run {run_id} is not known; allowed: {', '.join(runs.ids())}")
        journal = runs.journal(run_id)
        if journal.archived:
            raise VerificationError(
                f"{runs.target.name}: the old files of run {run_id} have expired; nothing was changed"
            )
        with runs.runner(journal) as runner:
            return _roll_back(runs, runner, journal, dry_run=dry_run)


def _roll_back(runs: PastRuns, runner: Runner, journal: Journal, *, dry_run: bool) -> RolledBack:
    if runner.swap.copies:
        raise ConfigError(
            f"run {journal.run.run_id} wrote a copy and left its source as it was; nothing is to roll back"
        )
    if not dry_run:
        journal.resume(runs.lock.token)
        if not has_ended(journal):
            recover(runner).refuse_problems()
    every = state_of_units(journal.records)
    states = {name: state for name, state in every.items() if state.swapped}
    runs.trust.forget_audit()  # recovery may have added entries
    for name, state in states.items():
        runs.trust.refuse_unaudited(journal, name, state)
        if not _is_back_already(runner, name, state):
            refuse_change(runner, name, state)
    _refuse_used(runs, runner, states)
    units = [(name, state.unit, state) for name, state in states.items()]
    index = None
    if not dry_run:
        for name, unit, state in reversed(units):
            roll_back_unit(runner, name, unit, state)
        if not has_ended(journal):
            journal.write(RunFinished("rolled back"))
        back = [state for state in every.values() if state.swapped or state.step == "unit_rolled_back"]
        index = carry_index(runs.target, runs.policy, runs.store, runs.files, back, back=True)
        journal.write(RunRolledBack(tuple(states)))
    files = sum(len(unit.files) for _, unit, _ in units)
    return RolledBack(runs.target.name, journal.run.run_id, tuple(sorted(states)), files, dry_run, index)


def _refuse_used(runs: PastRuns, runner: Runner, states: Mapping[str, UnitState]) -> None:
    """Raise an error if a table or partition points to an old folder that has to be renamed back.

    Raises:
        VerificationError: it names the folder and what points to it; nothing was changed.
    """
    renamed = {
        name: state.old_location
        for name, state in states.items()
        if runner.swap.same_folder or state.step == "unit_moved"
    }
    if not renamed:
        return
    places = runs.in_use.look()
    for name, old in renamed.items():
        refuse_used(places, name, old, "holds old files that are to be renamed back")


def refuse_change(runner: Runner, name: str, state: UnitState) -> None:
    """Raise an error if a unit's old files are incomplete, or rows were written to it since the run.

    Raises:
        VerificationError: it names the file.
    """
    unit, outcome = state.unit, state.outcome
    refuse_replaced(runner, unit, state)
    files = runner.run.files
    if runner.swap.same_folder:
        refuse_writers_at_work(files, unit)
    refuse_later(runner, name, state)
    old = by_place(outcome.old_location, list_folders(files, outcome.old_location))
    for place, file in by_place(unit.location, unit.folders).items():
        if place not in old or old[place].length != file.length:
            raise VerificationError(
                f"{name}: the old file {place} is not at {outcome.old_location} any more, or changed; it has expired, "
                "or someone deleted it; nothing was changed"
            )


def refuse_later(runner: Runner, name: str, state: UnitState) -> None:
    """Raise an error if files were added to a unit since the run: putting old files into use would lose their rows.

    Raises:
        VerificationError: it names the file.
    """
    new_location = state.new_location
    now = by_place(new_location, list_folders(runner.run.files, new_location))
    made_files = dict(new_files(state)) | dict(list_reconciled_files(state.carrying))
    later = sorted(now.keys() - made_files.keys())
    if later:
        raise VerificationError(
            f"{name}: {later[0]} was written after the run, and a rollback would lose its rows; nothing was changed"
        )


def roll_back_unit(runner: Runner, name: str, unit: Unit, state: UnitState) -> None:
    """Put one unit's old files back into use, unless a killed rollback has; record it in journal and audit."""
    run, outcome = runner.run, state.outcome
    run.progress.step(name, "rolling back")
    run.lock.check()
    run.journal.write(UnitRollingBack(name))
    if not _is_back_already(runner, name, state):
        catalog, table = Catalog(run.spark), run.target.table
        statistics = catalog.statistics(table) if table else None
        if comparable_path(outcome.old_location) != comparable_path(unit.location) and not runner.swap.same_folder:
            run.files.rename(outcome.old_location, unit.location)  # the run had moved them out of the table's folder
        runner.swap.undo(unit, state.staged)
        if table and statistics is not None:
            encrypted = frozenset(column.leaf.logical[0] for column in run.target.plan.encrypted)
            catalog.restore_statistics(table, statistics, encrypted)
    evidence = state.evidence
    changes = [
        {**change, "sources": change["targets"], "targets": change["sources"]} for change in evidence.get("changes", ())
    ]
    head = append_audit(
        run, "roll back", outcome.engine, {"unit": name, "files": len(unit.files)}, evidence.get("digests"), changes
    )
    run.journal.write(UnitRolledBack(name, head))


def _is_back_already(runner: Runner, name: str, state: UnitState) -> bool:
    """Tell whether a rollback that was killed has already put the unit's old files back into use."""
    return state.step == "unit_rolling_back" and not runner.swap.in_effect(state.unit, state.staged)
