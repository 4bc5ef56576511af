"""What a person decides of an open problem: the new files are right as they are, or what the old folder holds is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sparkcrypt.backfill.carry import old_locations, refuse_replaced
from sparkcrypt.backfill.compare import note_resolution, problems_of
from sparkcrypt.backfill.footers import DriverFooters, own_keys, sorted_out
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.options import RunOptions
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.past_run import PastRuns, past_runs
from sparkcrypt.backfill.problems import BACK, KEPT, Problem, Problems
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.reach import take_out
from sparkcrypt.backfill.report import Report
from sparkcrypt.backfill.rollback import refuse_later, roll_back_unit
from sparkcrypt.backfill.run import TableRun
from sparkcrypt.backfill.run_state import ended, paused
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.scan import refuse_unit, scanned_unit
from sparkcrypt.backfill.targets import catalog_target
from sparkcrypt.backfill.unit_record import by_place, restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import Unit, list_folders, refuse_writers_at_work
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import NULL_VALUE, Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was decided, and the report of the run that encrypted what the old folder holds, where that was kept."""

    problem: Problem
    keep: str
    reason: str
    run: Report | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        run = self.run.to_dict() if self.run else None
        return {"problem": self.problem.to_dict(), "keep": self.keep, "reason": self.reason, "run": run}


def resolve_problem(
    spark: SparkSession,
    table: str,
    policy: Policy,
    problem: str,
    *,
    keep: Literal["new", "old"],
    reason: str,
    adopt: bool = False,
    progress: Progress | None = None,
) -> Resolved:
    """Close an open problem of a table.

    Args:
        spark: a classic session.
        table: ``db.table``.
        policy: under which runs are made.
        problem: its name.
        keep: ``new`` leaves the table as it is: what is in the old folder now is known from then on, and may expire.
            ``old`` puts the old folder's present content into use, by a rollback of the unit and a run over it.
        reason: for the audit.
        adopt: believe files in the old folder that a table which requires encryption would not.
        progress: hears what is done.

    Raises:
        ConfigError: no such problem is open, or an argument is not one of those allowed.
        VerificationError: rows that were written since would be lost, or the old files cannot be used; nothing was
            changed.
        RunConflictError: a run holds the table.
    """
    if keep not in KEPT or not reason.strip():
        raise ConfigError(
            f"keep {keep!r} with reason {reason!r}: say new or old, and a reason that is not empty, for the audit"
        )
    where = None
    with past_runs(spark, table, policy, "resolve", progress) as runs:
        _refuse_unfinished(runs)
        journal, found = _opened(runs, problem)
        with runs.runner(journal) as runner:
            _resolve(runner, found, keep, reason.strip(), adopt=adopt)
            where = _predicate(restored(found.unit, _state(runner, found).fields))
    run = _encrypted(spark, table, policy, where, adopt=adopt, progress=runs.progress) if keep == "old" else None
    return Resolved(found, keep, reason.strip(), run)


def _resolve(runner: Runner, found: Problem, keep: str, reason: str, *, adopt: bool) -> None:
    journal, problems, state = runner.run.journal, problems_of(runner), _state(runner, found)
    if found.kind == BACK:
        journal.resume(runner.run.lock.token)
        _resolve_back(runner, found, state, keep, reason)
    elif keep == "old":
        if state.swapped:
            _refuse_old(runner, found, state, adopt=adopt)
        journal.resume(runner.run.lock.token)
        if state.swapped:
            roll_back_unit(runner, found.unit, restored(found.unit, state.fields), state)
        note_resolution(runner, found, keep, reason)
    else:
        journal.resume(runner.run.lock.token)
        listing = _listing(runner, found.unit, state) if state.swapped else {}
        note_resolution(runner, found, keep, reason, listing=listing)
        journal.append("unit_resolved", unit=found.unit, problem=found.problem, keep=keep, listing=listing)
    problems.close(found.problem, keep, reason)


def _resolve_back(runner: Runner, found: Problem, state: UnitState, keep: str, reason: str) -> None:
    """Take old files that are in use again for the table's, or move them out of the folder that is in use."""
    if keep == "new":
        state = take_out(runner, found.unit, state, found.old_location)
    listing = _listing(runner, found.unit, state)
    note_resolution(runner, found, keep, reason)
    runner.run.journal.append("unit_resolved", unit=found.unit, problem=found.problem, keep=keep, listing=listing)


def _refuse_old(runner: Runner, found: Problem, state: UnitState, *, adopt: bool) -> None:
    """Refuse to put an old folder into use where that would lose rows, or show readers what they would not believe.

    Raises:
        VerificationError: it says why; nothing was changed.
    """
    run, unit, outcome = runner.run, restored(found.unit, state.fields), UnitOutcome.from_dict(state.fields["outcome"])
    home = refuse_replaced(runner, unit, state)
    if home is not state:
        raise VerificationError(
            f"{unit.name}: a later run has rewritten its files to {home.fields['outcome']['new_location']}; look at "
            f"what differs in {outcome.old_location} with spark.read.parquet, change the table's rows by SQL, and "
            "resolve the problem with --keep new; nothing was changed"
        )
    if runner.swap.same_folder:
        refuse_writers_at_work(run.files, unit)
    refuse_later(runner, unit.name, state)
    folders = list_folders(run.files, outcome.old_location)
    moved = comparable_path(outcome.old_location) != comparable_path(unit.location) and not runner.swap.same_folder
    if not folders or (moved and list_folders(run.files, unit.location)):
        what = f"there are files in {unit.location} too" if folders else f"{outcome.old_location} holds no files"
        raise VerificationError(
            f"{unit.name}: {what}, so the old folder cannot be put into use as it is; change the table's rows by SQL, "
            "and resolve the problem with --keep new; nothing was changed"
        )
    there = replace(unit, location=outcome.old_location, folders=folders)
    footers = DriverFooters(run.files, own_keys(run.policy.key_service)).read(there.files)
    scanned = scanned_unit(there, sorted_out(footers, there.files), run.target)
    refuse_unit(scanned, run.target, run.policy, adopt=adopt)


def _listing(runner: Runner, name: str, state: UnitState) -> dict[str, list[list[Any]]]:
    """Return what is in a unit's old folders now: from then on it is known."""
    old = comparable_path(str(state.fields["outcome"]["old_location"]))
    found: dict[str, list[list[Any]]] = {}
    for location in old_locations(state):
        files = by_place(location, list_folders(runner.run.files, location))
        role = "old" if comparable_path(location) == old else "original"
        found[role] = [[place, file.length] for place, file in sorted(files.items())]
    return found


def _opened(runs: PastRuns, problem: str) -> tuple[Journal, Problem]:
    table_id = runs.target.table_id
    for run_id in runs.ids()[:1]:
        with runs.runner(runs.journal(run_id)) as runner:
            known = Problems(runs.store, table_id, lambda: runner.run.mac).open()
    found = next((one for one in known if one.problem == problem and one.run_id), None)
    if found is None:
        names = ", ".join(one.problem for one in known) or "none"
        raise ConfigError(f"{runs.target.name}: problem {problem} is not open; open: {names}")
    return runs.journal(found.run_id), found


def _refuse_unfinished(runs: PastRuns) -> None:
    for run_id in runs.ids():
        journal = runs.journal(run_id)
        if not (ended(journal) or paused(journal)):
            raise ConfigError(f"{runs.target.name}: run {run_id} is unfinished; run the job again to finish it first")


def _state(runner: Runner, found: Problem) -> UnitState:
    return state_of_units(runner.run.journal.records)[found.unit]


def _encrypted(
    spark: SparkSession, table: str, policy: Policy, where: str | None, *, adopt: bool, progress: Progress
) -> Report:
    target = catalog_target(spark, Catalog(spark).table(table), policy, None)
    options = RunOptions(keep_going=True, where=where, adopt=adopt)
    return TableRun(spark, target, policy, options, progress).run()


def _predicate(unit: Unit) -> str | None:
    """Return what chooses a unit's partition alone; None of a whole table, and where a value is Hive's null."""
    if unit.partition is None or any(value == NULL_VALUE for _, value in unit.partition.values):
        return None
    return " AND ".join(f"`{column}` <=> '{_escaped(value)}'" for column, value in unit.partition.values)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
