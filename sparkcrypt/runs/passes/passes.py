"""Passes over many tables: each is planned, checked for reasons against a run, and run; or its old files expire."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.journal.journal import Journal, new_run_id
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import list_unit
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import Expired, ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.former_homes import list_stray_files
from sparkcrypt.runs.old_folders.orphans import Orphan, OrphanSearch, expire_left
from sparkcrypt.runs.old_folders.past_run_checks import needs_care, read_open_problems
from sparkcrypt.runs.passes.choose_tables import Choice, Chosen, Filters, Gate, choose_tables
from sparkcrypt.runs.passes.key_status import KeySearch, tell_overdue
from sparkcrypt.runs.passes.last_pass import PassRecord, covers_table
from sparkcrypt.runs.passes.lost_tags import record_lost_tags, recorded_lost_tags
from sparkcrypt.runs.passes.report import NOT_IN_PLACE, PassReport, Point, TableError, TableFailures
from sparkcrypt.runs.passes.run import find_target, open_job, run_table
from sparkcrypt.runs.passes.units import survey_units
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Outcome, Report
from sparkcrypt.runs.rewrite.schedule import Budget, table_rank
from sparkcrypt.runs.table.difference import OF_FOLDERS
from sparkcrypt.runs.table.in_use import OtherTables
from sparkcrypt.runs.table.open_table import OpenTable, open_target
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.target import CatalogTarget, Target, catalog_target, id_of, target_folder_id
from sparkcrypt.runs.table.unit_survey import UnitSurvey, count_calls, digest_unit
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.remembered_names import expire_names
from sparkcrypt.spark.tables.table import Table, quote_name
from sparkcrypt.spark.tables.table_rules import rule_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG = logging.getLogger(__name__)
MOST_POINTS = 1_000


@dataclass(frozen=True, slots=True)
class PassOptions:
    """The options of a pass.

    Attributes:
        run: the options of each table's run.
        changed: skip tables whose tags, policy and files have not changed since a pass last found no drift.
        accept_path_readers: also rewrite tables that share a folder with another table.
        tables_at_once: how many tables are worked on concurrently, each with its `RunOptions.parallelism` of batches;
            they share the budget and the executors.
        max_bytes: see `Budget`.
        max_seconds: see `Budget`.
        select: see `Filters`.
        exclude: see `Filters`.
        page: where the HTML report of the pass is to be written, which is recorded of its tables; None if nowhere.
        on_failure: called with the partial report before an error that ends the pass is re-raised.
    """

    run: RunOptions = field(default_factory=lambda: RunOptions(keep_going=True))
    changed: bool = False
    accept_path_readers: bool = False
    tables_at_once: int = 1
    max_bytes: int | None = None
    max_seconds: float | None = None
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    page: str | None = None
    on_failure: Callable[[PassReport], None] = lambda _: None

    def check(self) -> None:
        """Check that the options are valid and can be combined.

        Raises:
            ConfigError: they are not; the message names the option and what is allowed.
        """
        self.run.check()
        if self.tables_at_once < 1:
            raise ConfigError(f"tables at once {self.tables_at_once} is not possible; allowed: 1 and more")


def backfill(
    spark: SparkSession,
    policy: Policy,
    *,
    tables: Iterable[str] = (),
    databases: Iterable[str] = (),
    path: str | None = None,
    options: PassOptions | None = None,
) -> PassReport:
    """Bring every chosen table to its plan; units whose files all match are left unchanged.

    A table that fails is reported, whatever the error, a unit that fails is quarantined if ``options.run`` keeps
    going, and the pass continues with the others.

    Args:
        spark: a classic session; it will be configured with the policy.
        policy: what the tags mean.
        tables: names, or patterns such as ``sales.cust*``.
        databases: databases of which every table in a format of the policy is chosen; without tables, databases and
            path, all of them.
        path: a bare folder, instead of tables and databases.
        options: the options of the pass.

    Raises:
        PlanError: a table or database does not exist.
        ConfigError: the options, or the state directory, cannot be used.
        KeyServiceUnavailableError, BridgeError: an error that every other table would meet too.
    """
    options = options or PassOptions()
    options.check()
    choice = Choice(tuple(tables), tuple(databases), Filters(options.select, options.exclude))
    if path is not None and (not choice.is_empty or choice.filters != Filters()):
        raise ConfigError("give tables or databases, and filters of them, or else a path")
    configure(spark, policy)
    store = open_state_directory(spark, policy.run_state)  # what is wrong with it concerns every table
    open_key_service(policy.key_service)  # nor can any table do without it
    choice = choice.or_all(spark) if path is None else choice
    if not options.run.dry_run:
        _expire_names(spark, choice.databases)
        _forget_gone_tables(spark, store)
    the_pass = _Pass(spark, policy, options, store)
    try:
        if path is None:
            return the_pass.run_on_tables(choose_tables(spark, choice, policy))
        return the_pass.run_on_folder(find_target(spark, None, path, policy, None, options.run.engine))
    except BaseException:
        options.on_failure(the_pass.report())
        raise


def _expire_names(spark: SparkSession, databases: Iterable[str]) -> None:
    for database in databases:
        try:
            expire_names(spark, database)
        except SparkcryptError as error:  # the pass itself names a database or a record that it cannot read
            _LOG.warning("names of %s without a table are not forgotten: %s", database, error)


def _forget_gone_tables(spark: SparkSession, store: StateStore) -> None:
    for name, _ in tuple(recorded_lost_tags(store)):
        if not Catalog(spark).exists(".".join(map(quote_name, name.split(".")))):
            record_lost_tags(store, name, None)


@dataclass(slots=True)
class _Passed:
    """What a pass found at one table, and did there.

    Attributes:
        reports: the reports of its runs; a run that ended with an error has a partial one.
        failures: its error, if it failed.
        unchanged: its name, if it was skipped, since it has not changed since a pass last found no drift.
        looked_at: its state directory and its id there.
        record: the record of the last pass over it.
        digests: those of its units, as its last run found them; None if a file of theirs differed from the plan.
    """

    reports: list[Report] = field(default_factory=list)
    failures: TableFailures = field(default_factory=TableFailures)
    unchanged: str | None = None
    looked_at: tuple[StateStore, str] | None = None
    record: PassRecord | None = None
    digests: tuple[str, ...] | None = None

    def see(self, surveys: Sequence[UnitSurvey]) -> None:
        """Take the units as a run found them."""
        self.digests = None if any(survey.drift for survey in surveys) else digests_of(surveys)


class _Pass:
    """One pass, which collects the results of its tables."""

    def __init__(self, spark: SparkSession, policy: Policy, options: PassOptions, store: StateStore) -> None:
        self._catalog, self._policy, self._options = Catalog(spark), policy, options
        self._store, self._records = store, not options.run.dry_run and covers_table(options.run)
        self._began, self._started = time.monotonic(), datetime.now(timezone.utc)
        self._shown, self._throughput = options.run.progress or Progress(), Throughput()
        self._files, self._budget = HadoopFiles(spark), Budget(options.max_bytes, options.max_seconds)
        self._gate, others = Gate(options.accept_path_readers), OtherTables(spark, policy.aliases)
        self._is_of_kind = partial(self._gate.of_kind, spark, policy)
        self._target: Callable[[Table], CatalogTarget] = partial(catalog_target, spark, policy=policy, avro=None)
        self._open_target: Callable[..., OpenTable] = partial(open_target, spark, policy=policy, others=others)
        self._keys = KeySearch(policy) if options.run.dry_run else None
        self._identifying = threading.Lock()
        self._passed: list[_Passed] = []

    def run_on_folder(self, target: Target) -> PassReport:
        """Run over a bare folder; return the report of the pass."""
        table, passed = self._open(target), _Passed()
        self._passed.append(passed)
        report = self._run(table, self._options.run, passed)
        passed.reports.append(report if self._keys is None else self._keys.add_missing(report, table.store))
        if self._records:
            PassRecord(table.store, target.table_id).keep(report, page=self._options.page)
        return self.report()

    def run_on_tables(self, chosen: Iterable[Chosen]) -> PassReport:
        """Run over tables, as many at once as the options say; return the report of the pass."""
        tables = [(candidate, _Passed()) for candidate in self._in_order(chosen)]
        self._passed += (passed for _, passed in tables)
        if self._options.tables_at_once == 1:
            for candidate, passed in tables:
                self._pass_over(candidate, passed)
        else:
            self._pass_over_many(tables)
        return self.report()

    def _pass_over_many(self, tables: Sequence[tuple[Chosen, _Passed]]) -> None:
        """Run over several tables at once; after an error that others would meet too, no table and no unit is begun."""

        def pass_over(table: tuple[Chosen, _Passed]) -> None:
            try:
                if not self._budget.closed:
                    self._pass_over(*table)
            except BaseException:
                self._budget.close()
                raise

        with ThreadPoolExecutor(self._options.tables_at_once, thread_name_prefix="table") as pool:
            try:
                deque(pool.map(pass_over, tables), maxlen=0)
            except BaseException:  # of a table, or an interrupt of this thread
                self._budget.close()
                raise

    def _pass_over(self, candidate: Chosen, passed: _Passed) -> None:
        with passed.failures.of(candidate.table.full_name):
            look_up = self._catalog.table if candidate.named else self._catalog.find
            table = look_up(candidate.table.quoted)  # its tags may have changed since the pass began
            if table is None:
                return  # dropped since
            if self._is_of_kind(replace(candidate, table=table)):
                passed.record = PassRecord(self._store, id_of(table))
                self._table(table, passed.record, passed)
        if passed.failures.found and passed.record is not None and self._records:
            with passed.failures.of(candidate.table.full_name):
                passed.record.keep_failed(candidate.table.full_name, passed.failures.found[0].error, passed.reports)

    def _in_order(self, chosen: Iterable[Chosen]) -> Iterable[Chosen]:
        """Return tables in the policy's order of their tags if a budget may leave some of them for a later pass."""
        options = self._options
        limited = options.max_bytes is not None or options.max_seconds is not None
        if not limited:
            return chosen
        return sorted(chosen, key=lambda candidate: self._rank(candidate.table))

    def _rank(self, table: Table) -> int:
        try:
            return table_rank(self._target(table).plan, self._policy)
        except Exception:  # noqa: BLE001  # whatever it is, it is reported when the table is processed
            return 0

    def _open(self, target: Target) -> OpenTable:
        return self._open_target(target, progress=PassProgress(self._shown.of_run(target.name), self._throughput))

    def _table(self, table: Table, record: PassRecord, passed: _Passed) -> None:
        run, target = self._options.run, self._target(table)
        opened = self._open(target)
        if not self._gate.may_run(opened, dry_run=run.dry_run):
            self._note(record, target.name, "refused", self._gate.refused[target.name])
            return
        passed.looked_at = opened.store, target.table_id
        if self._unchanged_since(target, record) and not self._needs_care(opened):
            passed.unchanged = target.name
            self._note(record, target.name, "unchanged")
            return
        if not target.plan.encrypted and target.uuid is None and not self._drifts(opened, passed):
            self._keep(record, passed, target)
            return  # no column is tagged or encrypted, so the table is not changed: it gets no identity either
        if not run.dry_run:
            identified = self._identify(target)
            if identified.table != target.table:
                target, opened = identified, self._open(identified)
        passed.record = record = record.of_table(target.table_id)
        report = self._run(opened, run, passed)
        if self._keys is not None:
            report = self._keys.add_missing(self._with_rule(report, target), opened.store)
        passed.reports.append(report)
        if self._keys is None and run.rotate_key is not None:
            passed.reports[-1] = self._count_calls(target.name, report)
        self._keep(record, passed, target)

    def _note(self, record: PassRecord, name: str, outcome: str, reason: str | None = None) -> None:
        if self._records:
            record.note(name, outcome, reason)

    def _keep(self, record: PassRecord, passed: _Passed, target: CatalogTarget) -> None:
        """Record the last report of a whole table, with the table's fingerprint if nothing is left to look at.

        Args:
            record: the record of the table.
            passed: has the report.
            target: the table as its run found it.
        """
        report = passed.reports[-1]
        if self._records:
            fingerprint = self._find_settled(report, passed.digests, target) if self._is_settled(report) else None
            record.keep(report, fingerprint=fingerprint, page=self._options.page)

    def _identify(self, target: CatalogTarget) -> CatalogTarget:
        """Give a table its identity and its rule; one table after the other, since others may have the same UUID."""
        with self._identifying:
            return target.with_identity(self._policy)

    @staticmethod
    def _is_settled(report: Report) -> bool:
        """Tell whether a run left nothing to look at; an untagged table is named by each pass."""
        return report.outcome in ("done", "nothing to do") and not report.untagged

    def _unchanged_since(self, target: CatalogTarget, record: PassRecord) -> bool:
        """Tell whether the pass skips unchanged tables, and a table is unchanged since a pass last found no drift."""
        return self._options.changed and record.fingerprint == fingerprint(target, list_digests(target, self._files))

    def _needs_care(self, table: OpenTable) -> bool:
        if self._options.run.dry_run:
            return bool(list_stray_files(table) or read_open_problems(table))
        return needs_care(table)

    def _drifts(self, table: OpenTable, passed: _Passed) -> bool:
        """Tell whether files of an untagged table differ from the plan; if none does, add the table's report."""
        found = self._run(table, replace(self._options.run, dry_run=True), passed)
        if set(found.drift["before"]) <= set(OF_FOLDERS):
            outcome: Outcome = "untagged" if found.untagged else "nothing to do"
            outcome = "incomplete" if found.quarantined else outcome
            passed.reports.append(found if self._options.run.dry_run else replace(found, outcome=outcome, planned=()))
            return False
        return True

    def _with_rule(self, report: Report, target: CatalogTarget) -> Report:
        """Return the report with a warning about parts of the policy's rule that the table's properties lack."""
        lines = rule_lines(target.spark, target.table, self._policy)
        if not lines:
            return report
        warning = f"{NOT_IN_PLACE} {'; '.join(lines)}; `sparkcrypt tags apply`, or a run, puts it there"
        return replace(report, warnings=(*report.warnings, warning))

    def _find_settled(self, report: Report, digests: tuple[str, ...] | None, target: CatalogTarget) -> str | None:
        """Return the table's fingerprint if none of its files differs from its plan.

        It is made of what a survey saw: that of the run, if that changed no unit and the plan is still the same, or
        else one after it.  What was written since makes the next pass look at the table.
        """
        now = self._target(self._catalog.table(report.table))
        if report.outcome == "nothing to do":
            is_same = (now.plan, now.table.schema_json) == (target.plan, target.table.schema_json)
            return fingerprint(now, digests) if digests is not None and is_same else None
        job = open_job(self._open(now), self._options.run, self._budget)
        surveyed = survey_units(job.table, job.reader, job.options)
        return None if surveyed.drifted else fingerprint(now, digests_of(surveyed.units))

    def _count_calls(self, name: str, report: Report) -> Report:
        """Survey a table after a rotation; return its report with how many calls a reader makes now."""
        target = self._target(self._catalog.table(name))
        job = open_job(self._open(target), self._options.run, self._budget)
        calls = count_calls(survey_units(job.table, job.reader, job.options).units)
        return replace(report, key_calls={**report.key_calls, "after": calls})

    def _run(self, table: OpenTable, options: RunOptions, passed: _Passed) -> Report:
        """Run over one target; if an error ends the run, its partial report is kept."""
        job = open_job(table, replace(options, on_failure=passed.reports.append), self._budget)
        return run_table(job, on_survey=passed.see)

    def report(self) -> PassReport:
        """Return the report of what has been done so far."""
        looked_at = [passed.looked_at for passed in self._passed if passed.looked_at is not None]
        return PassReport(
            pass_id=new_run_id(),
            policy_digest=self._policy.digest(),
            started=self._started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._began, 3),
            dry_run=self._options.run.dry_run,
            tables=[report for passed in self._passed for report in passed.reports],
            failed=[error for passed in self._passed for error in passed.failures.found],
            refused=dict(sorted(self._gate.refused.items())),
            passed_over=dict(sorted(self._gate.passed_over.items())),
            unchanged=[passed.unchanged for passed in self._passed if passed.unchanged is not None],
            throughput=self._throughput.points,
            warnings=[
                *self._gate.warnings,
                *(f"rotation overdue: {line}" for line in tell_overdue(self._policy, looked_at)),
            ],
        )


class Throughput:
    """The progress of a pass over time; tables and units may end in several threads.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began, self._mutex = clock, clock(), threading.Lock()
        self._files = self._bytes = 0
        self.points: list[Point] = [Point(0.0, 0, 0)]

    def add(self, files: int, total_bytes: int) -> None:
        """Record further files and bytes; negative numbers take them back."""
        with self._mutex:
            self._files, self._bytes = self._files + files, self._bytes + total_bytes
            self.points.append(Point(round(self._clock() - self._began, 3), self._files, self._bytes))
            if len(self.points) > MOST_POINTS:  # keep every second point, and the last
                self.points = [*self.points[:-1:2], self.points[-1]]


class PassProgress(Progress):
    """The progress of one run of a pass, which also counts for the pass.

    Args:
        shown: the progress to which everything is forwarded, from one thread at a time.
        throughput: that of the pass.
    """

    def __init__(self, shown: Progress, throughput: Throughput) -> None:
        self._shown, self._throughput, self._mutex = shown, throughput, threading.Lock()

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Forward the start of a run."""
        self._shown.start(target, units, files, total_bytes)

    def step(self, unit: str, step: str) -> None:
        """Forward the step of a unit."""
        self._shown.step(unit, step)

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Record and forward further files, bytes and units."""
        with self._mutex:
            self._throughput.add(files, total_bytes)
            self._shown.advance(files, total_bytes, units)

    def finish(self) -> None:
        """Forward the end of a run."""
        self._shown.finish()


def fingerprint(target: CatalogTarget, digests: Iterable[str]) -> str:
    """Return a digest of everything that determines a table's drift: plan, properties, schema, folders and files.

    Args:
        target: the table.
        digests: those of its units, in their order.
    """
    plan, options = target.plan.to_dict(), dict(sorted(target.options().items()))
    text = json.dumps([plan, options, target.table.schema_json, list(digests)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def digests_of(surveys: Iterable[UnitSurvey]) -> tuple[str, ...]:
    """Return the digests of surveyed units, for `fingerprint`."""
    return tuple(survey.digest for survey in surveys)


def list_digests(target: CatalogTarget, files: HadoopFiles) -> Iterator[str]:
    """List the units of a table, and yield the digest that each would have if no file of it differed from the plan.

    That of a folder that cannot be listed differs from every digest that a pass without drift has kept.
    """
    for unit in target.units(None):
        try:
            yield digest_unit(list_unit(files, unit))
        except StorageError:
            yield "not listed"


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ManyExpired(JsonObject):
    """The result of the expiry of many tables.

    Attributes:
        tables: the results of existing tables.
        left: UUID of a dropped table, or path of a bare folder -> its old folders.
        failed: the tables that failed, each with its error.
    """

    tables: tuple[Expired, ...] = ()
    left: Mapping[str, tuple[Orphan, ...]] = field(default_factory=dict)
    failed: tuple[TableError, ...] = ()


def expire_many(
    spark: SparkSession,
    policy: Policy,
    choice: Choice,
    *,
    path: str | None = None,
    options: ExpiryOptions,
) -> ManyExpired:
    """Delete old files of several tables; an existing table that fails keeps its old files, and the others are done.

    Args:
        spark: a classic session.
        policy: the policy under which the runs were made.
        choice: tables, patterns, UUIDs of dropped tables, databases; existing tables without a known run are skipped.
            Without any of them and without a path, all databases.
        path: a bare folder that was rewritten with ``--exclusive``.
        options: also runs of dropped tables keep their old files while they have a more recent record.

    Raises:
        PlanError: a table or database does not exist.
        KeyServiceUnavailableError, BridgeError: an error that every other table would meet too.
    """
    ids = [chosen for chosen in choice.tables if _UUID.fullmatch(chosen)]
    choice = choice.or_all(spark) if path is None else choice
    named = replace(choice, tables=tuple(chosen for chosen in choice.tables if chosen not in ids))
    names = {table.uuid: table.full_name for table in _tables(spark)} if ids else {}
    found = {
        chosen.table.full_name: chosen.table.uuid
        for chosen in (() if named.is_empty else choose_tables(spark, named, policy))
    }
    found |= {names[table_id]: table_id for table_id in ids if table_id in names}
    store = open_state_directory(spark, policy.run_state)
    done, failures, others = list[Expired](), TableFailures(), OtherTables(spark, policy.aliases)
    for name, uuid in found.items():
        with failures.of(name):
            if uuid is not None and Journal.runs(TableLog.open(store, uuid, None)):
                done.append(expire_run(spark, name, policy, options=options, others=others))
    dropped = {table_id: table_id for table_id in ids if table_id not in names}
    if path is not None:
        qualified = HadoopFiles(spark).qualify(path.rstrip("/"))
        dropped[qualified] = target_folder_id(qualified)
    search = OrphanSearch(spark, policy) if dropped else None
    leftovers = {
        name: tuple(expire_left(search, table_id, options)) for name, table_id in dropped.items() if search is not None
    }
    return ManyExpired(tuple(done), leftovers, tuple(failures.found))


def _tables(spark: SparkSession) -> Iterator[Any]:
    catalog = Catalog(spark)
    for database in catalog.databases():
        yield from catalog.all_of(database)
