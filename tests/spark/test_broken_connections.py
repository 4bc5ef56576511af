"""Locked tables, fenced drivers and broken connections to the metastore: exit codes, reports, and one more attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.errors import PlanError, RunConflictError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.open_table import Silent
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from tests.spark.killing import Clock, after_record, kill
from tests.spark.support import Lake, rows_of
from tests.spark.tables import PARTITIONED, tagged

pytestmark = pytest.mark.spark


class Flaky:
    """The session catalog, whose connection breaks the first few times that something is asked."""

    def __init__(self, catalog: Any, lake: Lake, breaks: dict[str, int]) -> None:
        """Take the catalog, and how often each question fails."""
        self._catalog, self._lake, self._breaks = catalog, lake, breaks

    def __getattr__(self, name: str) -> Any:
        """Return a method that fails as a refused connection does."""

        def called(*arguments: Any) -> Any:
            if self._breaks.get(name, 0) > 0:
                self._breaks[name] -= 1
                self._lake.jvm.java.net.Socket("127.0.0.1", 1)
            return getattr(self._catalog, name)(*arguments)

        return called


def breaking(monkeypatch: pytest.MonkeyPatch, lake: Lake, **breaks: int) -> None:
    """Let the metastore's connection break so many times at some questions."""
    made = Catalog.__init__

    def init(self: Catalog, spark: Any) -> None:
        made(self, spark)
        self._catalog = Flaky(self._catalog, lake, breaks)

    monkeypatch.setattr(Catalog, "__init__", init)
    monkeypatch.setattr("sparkcrypt.spark.tables.catalog.PAUSE_SECONDS", 0.0)


def test_one_broken_connection_is_no_answer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass goes on where the metastore's connection breaks once at each kind of question."""
    policy, before = tagged(lake, PARTITIONED["using"])
    breaking(monkeypatch, lake, getTableMetadata=1, listPartitions=1, listDatabases=1, listTables=1)
    assert backfill(lake.spark, policy, databases=[lake.database]).outcome == "done"
    monkeypatch.undo()
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_metastore_that_stays_away_is_not_a_table_that_is_not_there(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the second attempt fails too, the error says that the metastore cannot be asked."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    breaking(monkeypatch, lake, getTableMetadata=1_000)
    with pytest.raises(Exception, match="the metastore cannot be asked") as caught:
        encrypt_table(lake.spark, "t", policy)
    assert not isinstance(caught.value, PlanError)


def test_metastore_is_not_asked_for_partitions_for_each_unit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six partitions more are not six more questions for all partitions; what grew old may be asked for again."""
    counts = []
    for partitions in (2, 8):
        lake.sql(f"CREATE TABLE w{partitions} (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p)")
        values = ", ".join(f"({n}, 'x', {n})" for n in range(partitions))
        lake.sql(f"INSERT INTO w{partitions} VALUES {values}")
        policy = lake.policy()
        lake.sql(f"ALTER TABLE w{partitions} SET TBLPROPERTIES ('x' = 'y')")
        from sparkcrypt.spark.tables.tagging import set_tags

        set_tags(lake.spark, f"w{partitions}", {"email": ["pii"]}, policy)
        asked: list[Any] = []
        with monkeypatch.context() as patch:
            listed = Catalog.partitions

            def counted(self: Catalog, table: Any, having: Any = None, listed: Any = listed, asked: Any = asked) -> Any:
                asked.append(having)
                return listed(self, table, having)

            patch.setattr(Catalog, "partitions", counted)
            options = RunOptions(keep_going=True, move_old=True)
            report = backfill(lake.spark, policy, tables=[f"w{partitions}"], options=PassOptions(run=options))
        assert report.tables[0].files_rewritten == partitions
        counts.append(len([condition for condition in asked if condition is None]))
    assert counts[1] < counts[0] + 6


def test_pass_over_locked_tables_ends_with_75(lake: Lake) -> None:
    """Where nothing is wrong but that other runs hold tables, a scheduler can tell; with another failure it cannot."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    uuid = ensure_identity(lake.spark, lake.name("t")).uuid or ""
    with acquire(open_state_store(policy.run_state), uuid, run_id="the-first-run", owner="somebody"):
        report = backfill(lake.spark, policy, tables=["t"])
    assert report.exit_code == RunConflictError.exit_code == 75
    assert report.to_dict()["failed"][0]["error"] == "RunConflictError"


def test_report_of_a_fenced_run_tells_what_was_done(lake: Lake, clock: Clock) -> None:
    """A driver that loses its lock between two units: its report has the run, the first unit, and why it ended."""
    policy, _ = tagged(lake, PARTITIONED["using"])

    class Pause(Silent):
        """Sleeps before the second swap."""

        def step(self, unit: str, step: str) -> None:
            """Let the lock expire."""
            clock.now += 1_000 if (unit, step) == ("p=1", "swapping") else 0

    options = PassOptions(run=RunOptions(keep_going=True, parallelism=1, progress=Pause()))
    report = backfill(lake.spark, policy, tables=["t"], options=options)
    assert report.exit_code == 75
    (run,) = report.tables
    assert (run.outcome, [unit["unit"] for unit in run.units]) == ("failed", ["p=0"])
    store = open_state_store(policy.run_state)
    assert run.run_id == Journal.find_unfinished(store, Catalog(lake.spark).table("t").uuid or "")
    assert json.loads(json.dumps(report.to_dict()))["tables"][0]["run_id"] == run.run_id


def test_error_that_ends_everything_leaves_a_report(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls hears what was done before the error goes on."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    heard: list[PassReport | Report] = []

    class Break(Silent):
        """Fails in a way that nothing foresees, after the first unit."""

        def step(self, unit: str, step: str) -> None:
            """Fail."""
            if (unit, step) == ("p=1", "staging"):
                raise MemoryError

    run = RunOptions(keep_going=True, parallelism=1, progress=Break())
    with pytest.raises(MemoryError):
        backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=run, on_failure=heard.append))
    with pytest.raises(MemoryError):
        encrypt_table(lake.spark, "t", policy, progress=Break(), on_failure=heard.append)
    first, second = heard
    assert isinstance(first, PassReport) and isinstance(second, Report)
    assert [unit["unit"] for unit in first.tables[0].units] == [unit["unit"] for unit in second.units] == ["p=0"]
    assert first.tables[0].run_id == second.run_id


def test_continued_pass_tells_its_own_part(lake: Lake, clock: Clock) -> None:
    """The report of a run that goes on says what this pass did, beside the run so far."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_record("unit_swapped"))
    report = backfill(lake.spark, policy, tables=["t"])
    (run,) = report.tables
    assert (run.files_rewritten, run.earlier, run.this_pass["files_rewritten"]) == (4, ("p=0",), 2)
    assert report.totals()["files_rewritten"] == 2
    assert "2 files, 2 rows; 1 units were done before it" in run.to_text()
    assert Path(policy.run_state).exists()
