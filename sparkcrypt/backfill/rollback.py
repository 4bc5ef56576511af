"""Rollback of a run: its units point to their old files again, as long as those are there and nobody wrote since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.carry import new_files, refuse_replaced
from sparkcrypt.backfill.in_use import refuse_used
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.ledger import audited
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.past_run import PastRuns, past_runs
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.recover import recover
from sparkcrypt.backfill.run_state import ended
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.swap import NewFolder
from sparkcrypt.backfill.unit_record import below, by_place, restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import Unit, list_folders, refuse_writers_at_work
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What was put back."""

    table: str
    run_id: str
    units: tuple[str, ...]
    files: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "run_id": self.run_id,
            "units": list(self.units),
            "files": self.files,
            "dry_run": self.dry_run,
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

    Every unit is checked before the first is changed.  Old files are under the keys, or the lack of keys, that they had
    before, so the table drifts from its plan again, and a table that requires encryption may refuse to be read.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: under which the run was made.
        run_id: which run.
        dry_run: tell, and change nothing.
        progress: hears what is done.

    Raises:
        ConfigError: there is no such run, or it wrote a copy.
        VerificationError: old files are gone or changed, or rows were written since the run; nothing was changed.
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
            return _rolled_back(runs, runner, journal, dry_run=dry_run)


def _rolled_back(runs: PastRuns, runner: Runner, journal: Journal, *, dry_run: bool) -> RolledBack:
    if isinstance(runner.swap, NewFolder):
        raise ConfigError(
            f"run {journal.run.run_id} wrote a copy and left its source as it was; nothing is to roll back"
        )
    if not dry_run:
        journal.resume(runs.lock.token)
        if not ended(journal):
            recover(runner).refuse_problems()
    states = {name: state for name, state in state_of_units(journal.records).items() if state.swapped}
    runs.trust.forget_audit()  # what was recovered has entries since
    for name, state in states.items():
        runs.trust.refuse_unaudited(journal, name, state)
        if not _back_already(runner, name, state):
            refuse_change(runner, name, state)
    _refuse_used(runs, runner, states)
    units = [(name, restored(name, state.fields), state) for name, state in states.items()]
    if not dry_run:
        for name, unit, state in reversed(units):
            roll_back_unit(runner, name, unit, state)
        if not ended(journal):
            journal.append("run_finished", outcome="rolled back")
        journal.append("run_rolled_back", units=[name for name, _, _ in units])
    files = sum(len(unit.files) for _, unit, _ in units)
    return RolledBack(runs.target.name, journal.run.run_id, tuple(sorted(states)), files, dry_run)


def _refuse_used(runs: PastRuns, runner: Runner, states: Mapping[str, UnitState]) -> None:
    """Refuse to rename old folders that somebody has come to use where they are.

    Raises:
        VerificationError: it names the folder and who points to it; nothing was changed.
    """
    renamed = {
        name: str(state.fields["outcome"]["old_location"])
        for name, state in states.items()
        if runner.swap.same_folder or state.step == "unit_moved"
    }
    if not renamed:
        return
    places = runs.in_use.look()
    for name, old in renamed.items():
        refuse_used(places, name, old, "holds old files that are to be renamed back")


def refuse_change(runner: Runner, name: str, state: UnitState) -> None:
    """Refuse a unit whose old files are not all there, or to which somebody has written since the run.

    Raises:
        VerificationError: it names the file.
    """
    unit, outcome = restored(name, state.fields), UnitOutcome.from_dict(state.fields["outcome"])
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
    """Refuse a unit to which somebody has written since the run: to put old files into use would lose his rows.

    Raises:
        VerificationError: it names the file.
    """
    new_location = str(state.fields["outcome"]["new_location"])
    now = by_place(new_location, list_folders(runner.run.files, new_location))
    made = dict(new_files(state)) | _carried_to(state)
    later = sorted(now.keys() - made.keys())
    if later:
        raise VerificationError(
            f"{name}: {later[0]} was written after the run, and a rollback would lose its rows; nothing was changed"
        )


def roll_back_unit(runner: Runner, name: str, unit: Unit, state: UnitState) -> None:
    """Put one unit's old files back into use, journalled and audited; what a killed rollback did already stays."""
    run, outcome = runner.run, UnitOutcome.from_dict(state.fields["outcome"])
    run.progress.step(name, "rolling back")
    run.lock.check()
    run.journal.append("unit_rolling_back", unit=name)
    if not _back_already(runner, name, state):
        catalog, table = Catalog(run.spark), getattr(run.target, "table", None)
        statistics = catalog.statistics(table) if table else None
        if comparable_path(outcome.old_location) != comparable_path(unit.location) and not runner.swap.same_folder:
            run.files.rename(outcome.old_location, unit.location)  # the run had moved them out of the table's folder
        runner.swap.undo(unit, str(state.fields["staged"]))
        if table and statistics is not None:
            encrypted = frozenset(column.leaf.logical[0] for column in run.target.plan.encrypted)
            catalog.restore_statistics(table, statistics, encrypted)
    evidence = state.fields.get("evidence", {})
    changes = [
        {**change, "sources": change["targets"], "targets": change["sources"]} for change in evidence.get("changes", ())
    ]
    head = audited(
        run, "roll back", outcome.engine, {"unit": name, "files": len(unit.files)}, evidence.get("digests"), changes
    )
    run.journal.append("unit_rolled_back", unit=name, audit=head.to_dict())


def _back_already(runner: Runner, name: str, state: UnitState) -> bool:
    """Tell whether a rollback that was killed has changed the unit back."""
    unit = restored(name, state.fields)
    return state.step == "unit_rolling_back" and not runner.swap.in_effect(unit, str(state.fields["staged"]))


def _carried_to(state: UnitState) -> dict[str, int]:
    return {
        below(str(record["staged"]), str(path)): int(length)
        for record in state.carrying
        for _, files in record["made"]
        for path, length, _ in files
    }
