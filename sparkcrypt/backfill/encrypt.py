"""One run over one table or directory: plan, list, stage, verify, recheck, swap, recheck, audit."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.engines import ENGINES, Engine
from sparkcrypt.backfill.footers import own_keys
from sparkcrypt.backfill.journal import Journal, RunRecord, check_same_policy, new_run_id
from sparkcrypt.backfill.lock import RunLock, acquire
from sparkcrypt.backfill.mac import MasterKeys
from sparkcrypt.backfill.move import refuse_other_file_systems
from sparkcrypt.backfill.native import NativeStager
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.progress import Progress, Silent
from sparkcrypt.backfill.report import Outcome, Report
from sparkcrypt.backfill.result import RunResult, last_audit
from sparkcrypt.backfill.runner import Runner
from sparkcrypt.backfill.scan import ScannedUnit, refuse_algorithms, refuse_forgeries, scan_units
from sparkcrypt.backfill.stage import SparkStager, refuse_lost_columns
from sparkcrypt.backfill.staging import Stager
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.swap import Swap, choose_swap
from sparkcrypt.backfill.targets import CatalogTarget, Target, catalog_target, path_target
from sparkcrypt.errors import ConfigError, RunConflictError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Schema
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.spark.session import configure
from sparkcrypt.spark.tagging import ensure_identity
from sparkcrypt.tags.model import history_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOVED = (
    "old files were moved out of the table's folder: readers that had listed them fail with 'file not found' and must "
    "run again; `sparkcrypt backfill expire` deletes them"
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a person may ask of a run.

    ``engine`` is ``native``, which rewrites files page by page, or ``spark``, which reads and writes rows anew.
    ``adopt`` lets a run rewrite files that a table which requires encryption would not believe.  ``resume`` is ``auto``
    (continue an unfinished run), a run id, or ``never``.  ``move_old`` moves old files out of the table's folder after
    the swap, so that readers in flight fail and nothing brings them back.
    """

    engine: Engine = "native"
    where: str | None = None
    output: str | None = None
    exclusive: bool = False
    dry_run: bool = False
    adopt: bool = False
    resume: str = "auto"
    move_old: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the options that a run's journal records."""
        return {
            "engine": self.engine,
            "where": self.where,
            "output": self.output,
            "exclusive": self.exclusive,
            "move_old": self.move_old,
        }


def encrypt_table(
    spark: SparkSession,
    table: str | None,
    policy: Policy,
    *,
    path: str | None = None,
    avro: Schema | None = None,
    options: RunOptions | None = None,
    progress: Progress | None = None,
    on_plan: Callable[[EncryptionPlan], None] | None = None,
    **named: Any,
) -> Report:
    """Encrypt what a table or directory holds, by its tags; files that match the plan already are left alone.

    Args:
        spark: a classic session; it is configured with the policy.
        table: ``db.table``, or None with ``path``.
        policy: what the tags mean.
        path: a bare directory of Parquet files.
        avro: an Avro schema whose tags are united with the target's own.
        options: what else is asked; single options may be given by name instead (``engine="native"``).
        progress: hears how far the run is.
        on_plan: hears the plan before anything is read or written; what it raises ends the run.
        **named: single options by their names in ``RunOptions``.

    Returns:
        The report.

    Raises:
        PlanError, ConfigError: refused before anything was written.
        VerificationError: something was not as promised; the unit is as it was before.
        RunConflictError: another run holds the table.
    """
    options = replace(options or RunOptions(), **named)
    if options.move_old and options.output:
        raise ConfigError(
            "--move-old goes with a swap, and --output makes a copy: the source directory stays as it is, for whoever "
            "reads it; leave one of the two out"
        )
    if options.engine not in ENGINES:
        raise ConfigError(f"engine {options.engine!r} is not known; allowed: {', '.join(ENGINES)}")
    if (table is None) == (path is None):
        raise ConfigError("give either a table or a path")
    configure(spark, policy)
    target = _target(spark, table, path, policy, avro, options.engine)
    if on_plan is not None:
        on_plan(target.plan)
    if isinstance(target, CatalogTarget) and target.uuid is None and not options.dry_run:
        target = replace(target, table=ensure_identity(spark, table or ""))
    return _Run(spark, target, policy, options, progress or Silent()).run()


def _target(
    spark: SparkSession, table: str | None, path: str | None, policy: Policy, avro: Schema | None, engine: Engine
) -> Target:
    if path is not None:
        return path_target(spark, path, policy, avro)
    target = catalog_target(spark, Catalog(spark).table(table or ""), policy, avro)
    if target.table.bucketed and engine == "spark":
        raise ConfigError(
            f"{target.name} is bucketed: Spark's engine would give its files other names, by which buckets are told; "
            "use --engine native, which keeps them"
        )
    return target


class _Run:
    """One execution; its steps are in the order in which they happen."""

    def __init__(
        self, spark: SparkSession, target: Target, policy: Policy, options: RunOptions, progress: Progress
    ) -> None:
        self._spark, self._target, self._policy, self._options = spark, target, policy, options
        self._progress, self._started = progress, time.monotonic()
        self._files = HadoopFiles(spark)
        self._keys = own_keys(policy.key_service)
        self._store = open_states(spark, policy.run_state, outside=target.base)

    def run(self) -> Report:
        """Do it all."""
        if self._options.dry_run:
            self._swap("dry-run", self._options)
            return self._report(RunResult("dry-run", "dry run", self._scan()))
        run_id = self._run_id()
        with acquire(self._store, self._target.table_id, run_id=run_id, owner=_owner()) as lock:
            lock.keep_alive()
            return self._locked(run_id, lock)

    def _run_id(self) -> str:
        """Return the unfinished run's id when there is one to continue, else a new one."""
        unfinished = Journal.unfinished(self._store, self._target.table_id)
        if self._options.resume not in ("auto", "never") and self._options.resume != unfinished:
            raise RunConflictError(
                f"{self._target.name}: run {self._options.resume} cannot be resumed; unfinished: {unfinished or 'none'}"
            )
        return unfinished or new_run_id()

    def _locked(self, run_id: str, lock: RunLock) -> Report:
        runner: Runner | None = None
        done: list[UnitOutcome] = []
        if Journal.unfinished(self._store, self._target.table_id) == run_id:
            runner, done = self._continued(run_id, lock)
        if runner is not None and self._options.resume == "never":
            runner.journal.append("run_finished", outcome="abandoned")
            runner, done, run_id = None, [], new_run_id()
        if runner is None:
            self._swap(run_id, self._options)  # refuses before anything is read or written
        scanned = self._scan()
        drifted = [unit for unit in scanned if unit.drift and unit.unit.files]
        self._refuse(drifted)
        if runner is None and not drifted:
            return self._report(RunResult(run_id, "nothing to do", scanned))
        runner = runner or self._runner(Journal.start(self._store, self._record(run_id, lock)), lock, self._options)
        outcomes = [*done, *self._process(runner, drifted)]
        if isinstance(self._target, CatalogTarget):
            self._settle(self._target)
        outcome: Outcome = "done" if outcomes else "nothing to do"
        runner.journal.append("run_finished", outcome=outcome)
        notes, head = self._notes(runner) if outcomes else (), last_audit(runner.journal)
        return self._report(RunResult(run_id, outcome, scanned, outcomes, runner.swap.name, notes, head))

    def _notes(self, runner: Runner) -> tuple[str, ...]:
        masters = MasterKeys.of(self._policy)
        notes = (_MOVED if runner.moves_old else runner.swap.warning, masters.weakness(masters.current))
        return tuple(note for note in notes if note is not None)

    def _process(self, runner: Runner, drifted: list[ScannedUnit]) -> list[UnitOutcome]:
        self._progress.start(
            self._target.name,
            len(drifted),
            sum(len(one.unit.files) for one in drifted),
            sum(one.unit.total_bytes for one in drifted),
        )
        try:
            return [runner.process(unit) for unit in drifted]
        finally:
            self._progress.finish()

    def _continued(self, run_id: str, lock: RunLock) -> tuple[Runner, list[UnitOutcome]]:
        """Take over an interrupted run and bring its units to a clean state."""
        journal = Journal.open(self._store, self._target.table_id, run_id)
        if self._options.resume != "never":
            check_same_policy(journal, self._policy.digest())
        journal.resume(lock.token)
        runner = self._runner(journal, lock, journal_options(journal, self._options), resumed=True)
        return runner, runner.recover()

    def _runner(self, journal: Journal, lock: RunLock, options: RunOptions, *, resumed: bool = False) -> Runner:
        swap = self._swap(journal.run.run_id, options, resumed=resumed)
        stager: Stager = SparkStager(self._spark, self._target, self._policy)
        if options.engine == "native":
            renamed_by = journal.run.run_id if swap.same_folder else None
            stager = NativeStager(self._spark, self._target, self._policy, self._store, renamed_by=renamed_by)
        return Runner(self._spark, self._target, self._policy, stager, swap, self._store, journal, lock, self._progress)

    def _swap(self, run_id: str, options: RunOptions, *, resumed: bool = False) -> Swap:
        output, exclusive = options.output, options.exclusive
        return choose_swap(self._spark, self._target, run_id, output=output, exclusive=exclusive, resumed=resumed)

    def _record(self, run_id: str, lock: RunLock) -> RunRecord:
        return RunRecord(
            table_id=self._target.table_id,
            table=self._target.name,
            run_id=run_id,
            policy_digest=self._policy.digest(),
            plan=self._target.plan.to_dict(),
            options=self._options.to_dict(),
            fencing_token=lock.token,
        )

    def _scan(self) -> list[ScannedUnit]:
        units = self._target.units(self._options.where)
        return scan_units(self._files, units, self._target.plan, self._keys, self._target.uuid)

    def _refuse(self, drifted: list[ScannedUnit]) -> None:
        if self._options.move_old:
            refuse_other_file_systems(tuple(scanned.unit for scanned in drifted), self._target.base)
        for scanned in drifted:
            refuse_algorithms(scanned, self._policy)
            if not self._options.adopt:
                refuse_forgeries(scanned, self._target.plan)
            refuse_lost_columns(scanned.summaries, self._target.plan)

    def _settle(self, target: CatalogTarget) -> None:
        """After the whole table was done: readers need no history any more."""
        if self._options.where is None:
            paths = {column.leaf.logical for column in target.plan.columns}
            Catalog(self._spark).unset_options(target.table, tuple(history_property(path) for path in sorted(paths)))

    def _report(self, result: RunResult) -> Report:
        return result.report(self._target, self._options.engine, time.monotonic() - self._started)


def journal_options(journal: Journal, asked: RunOptions) -> RunOptions:
    """Return the options under which an unfinished run was started: it goes on as it began."""
    began = journal.run.options
    return replace(
        asked,
        engine=began["engine"],
        where=began["where"],
        output=began["output"],
        exclusive=began["exclusive"],
        move_old=began.get("move_old", False),
    )


def _owner() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
