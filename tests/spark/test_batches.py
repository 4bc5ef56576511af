"""Batches of units: one job, one call of the metastore, one object of the log a step; each unit is all or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import RunConflictError, StorageError
from sparkcrypt.files.orders import FileOrder
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes import run as run_module
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite import native_engine, unit_rewriter
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.swap import LocationSwap
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.spark.tables.catalog import Catalog, PartitionMove
from sparkcrypt.spark.tasks.run import rewrite_in_tasks
from tests.spark.killing import STEPS, Clock, Killed, after_swaps, kill_during
from tests.spark.late_writers import audits
from tests.spark.support import SECRET, Lake, data_files, rows_of
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark

UNITS = 4
NAMES = [f"p={number}" for number in range(UNITS)]


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """The policy of a table ``t`` of four partitions, which all make one batch."""
    made = lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n")
    make_table(lake, "t", partitions=UNITS)
    return made


def pass_over(lake: Lake, policy: Policy) -> Report:
    """Run a pass that goes on after a unit that fails."""
    run = RunOptions(keep_going=True, parallelism=1)
    return backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=run)).tables[0]


def rows(lake: Lake) -> list[Any]:
    """Return the table's rows as they are now."""
    lake.spark.catalog.refreshTable("t")
    return rows_of(lake.spark.table("t"))


def before_late_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a run when its units are done, before it looks for late commits."""

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(run_module, "compare_run", die)


def end_well(lake: Lake, policy: Policy, before: list[Any], *, swaps: int = UNITS) -> None:
    """Check that the table has its rows, is encrypted, and that the audit has each swap once."""
    assert rows(lake) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    assert audits(lake, policy) == ["encrypt"] * swaps


@pytest.mark.sparks
def test_steps_are_taken_for_all_units_at_once(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job of Spark stages them, one call of the metastore swaps them, and each step is one object of the log."""
    before, jobs, calls = rows(lake), list[int](), list[int]()
    move_partitions = Catalog.move_partitions

    def rewrite(spark: Any, orders: Sequence[FileOrder], *more: Any) -> Any:
        jobs.append(len(orders))
        return rewrite_in_tasks(spark, orders, *more)

    def moved(self: Catalog, table: Any, moves: Sequence[PartitionMove]) -> Any:
        calls.append(len(moves))
        return move_partitions(self, table, moves)

    monkeypatch.setattr(native_engine, "rewrite_in_tasks", rewrite)
    monkeypatch.setattr(Catalog, "move_partitions", moved)
    report = encrypt_table(lake.spark, "t", policy)
    assert (report.outcome, jobs, calls) == ("done", [UNITS], [UNITS])
    objects = [path for path in (lake.root / "state" / "log").rglob("*.json")] or list(lake.root.rglob("log/*/0*.json"))
    kinds = Counter(len(path.read_text().splitlines()) for path in objects)
    assert kinds == {1: 2, UNITS: 5}  # begun and finished; listed, staged, verified, swapping, swapped
    end_well(lake, policy, before)


def test_units_are_taken_as_they_can_be_listed_again(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where listing takes long, a batch is swapped in parts, so that no unit was listed long before its swap."""
    before, calls = rows(lake), list[int]()
    swap_all = LocationSwap.swap_all

    def swapped(self: LocationSwap, several: Sequence[NewFiles]) -> Any:
        calls.append(len(several))
        return swap_all(self, several)

    monkeypatch.setattr(unit_rewriter, "LISTED_SECONDS", 0.0)
    monkeypatch.setattr(LocationSwap, "swap_all", swapped)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert calls == [1] * UNITS
    end_well(lake, policy, before)


@pytest.mark.sparks
def test_partition_that_somebody_moves_leaves_the_batch(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved right before the call: the others are swapped, and it is tried again where it is then."""
    before, swap_under_lock = rows(lake), UnitRewriter._swap_under_lock
    there, moved = lake.root / "elsewhere", list[int]()

    def move(self: UnitRewriter, chunk: Any) -> Any:
        if not moved:
            moved.append(1)
            there.mkdir()
            for file in (lake.path("t") / "p=1").glob("*.parquet"):
                (there / file.name).write_bytes(file.read_bytes())
            lake.sql(f"ALTER TABLE t PARTITION (p=1) SET LOCATION '{there.as_uri()}'")
        return swap_under_lock(self, chunk)

    monkeypatch.setattr(UnitRewriter, "_swap_under_lock", move)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0,))
    report = pass_over(lake, policy)
    assert report.outcome == "done"
    (again,) = (unit for unit in report.units if unit["unit"] == "p=1")
    assert str(there) in again["old_location"]
    end_well(lake, policy, before)


def test_partition_that_somebody_drops_leaves_the_batch(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are swapped, and it stays dropped."""
    before, swap_under_lock = rows(lake), UnitRewriter._swap_under_lock

    def drop(self: UnitRewriter, chunk: Any) -> Any:
        lake.sql("ALTER TABLE t DROP IF EXISTS PARTITION (p=2)")
        return swap_under_lock(self, chunk)

    monkeypatch.setattr(UnitRewriter, "_swap_under_lock", drop)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0,))
    assert pass_over(lake, policy).outcome == "done"
    end_well(lake, policy, [row for row in before if row.p != 2], swaps=UNITS - 1)


def test_unit_to_which_somebody_writes_is_undone_alone(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file came to its old folder between the listing and the call: the others stay swapped."""
    before, left = rows(lake), list[int]()

    def write(_swap: Any, new: NewFiles) -> None:
        if new.unit.name == "p=3" and not left:
            left.append(1)
            (file,) = data_files(lake.path("t") / "p=3")
            file.with_name("part-late.parquet").write_bytes(file.read_bytes())

    after_swaps(monkeypatch, LocationSwap, write)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0,))
    report = pass_over(lake, policy)
    assert report.outcome == "done"
    assert sorted(unit["unit"] for unit in report.units) == NAMES
    assert len(rows(lake)) == len(before) + 1
    assert audits(lake, policy) == ["encrypt"] * UNITS
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


@pytest.mark.parametrize("applied", [0, 2, UNITS])
def test_failed_call_is_what_the_metastore_says_of_each_unit(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch, applied: int
) -> None:
    """A call that fails after it changed none, some or all partitions: those that it left are swapped one by one."""
    before, move_partitions, calls = rows(lake), Catalog.move_partitions, list[int]()

    def fail(self: Catalog, table: Any, moves: Sequence[PartitionMove]) -> Any:
        calls.append(len(moves))
        if len(calls) > 1:
            return move_partitions(self, table, moves)
        move_partitions(self, table, moves[:applied])
        raise StorageError("the answer of the metastore was lost")

    monkeypatch.setattr(Catalog, "move_partitions", fail)
    report = pass_over(lake, policy)
    assert (report.outcome, calls) == ("done", [UNITS, *[1] * (UNITS - applied)])
    end_well(lake, policy, before)


def test_partition_that_the_metastore_refuses_keeps_no_other(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses all of a call that has it: the others are swapped by themselves, and it alone is quarantined."""
    before, move_partitions = rows(lake), Catalog.move_partitions

    def refuse(self: Catalog, table: Any, moves: Sequence[PartitionMove]) -> Any:
        if any("p=1" in move.location for move in moves):
            raise StorageError("the metastore refuses p=1")
        return move_partitions(self, table, moves)

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "move_partitions", refuse)
        report = pass_over(lake, policy)
    assert [(unit["unit"], unit["message"]) for unit in report.quarantined] == [("p=1", "the metastore refuses p=1")]
    assert pass_over(lake, policy).outcome == "done"
    end_well(lake, policy, before)


def test_partition_that_is_dropped_during_the_call_keeps_no_other(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metastore then refuses the whole call."""
    before, fetch = rows(lake), Catalog._fetch

    def drop(self: Catalog, table: Any, wanted: Any) -> Any:
        found = fetch(self, table, wanted)
        lake.sql("ALTER TABLE t DROP IF EXISTS PARTITION (p=2)")
        return found

    monkeypatch.setattr(Catalog, "_fetch", drop)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0,))
    assert pass_over(lake, policy).outcome == "done"
    end_well(lake, policy, [row for row in before if row.p != 2], swaps=UNITS - 1)


def test_driver_that_wakes_up_within_the_call_gives_way_for_each_unit(
    lake: Lake, policy: Policy, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had read the partitions before it slept: each is pointed back, though the first cannot be, which it names."""
    before, fetch, undo, slept = rows(lake), Catalog._fetch, LocationSwap.undo, list[str]()

    def sleep(self: Catalog, table: Any, wanted: Any) -> Any:
        found = fetch(self, table, wanted)
        if not slept:
            slept.append("once")
            clock.now += 1_000
            assert encrypt_table(lake.spark, "t", policy).outcome == "done"
            lake.sql(f"INSERT INTO t VALUES (77, '{SECRET}-77', 7.5, 1)")
        return found

    def fail(self: LocationSwap, new: NewFiles, location: str | None = None) -> None:
        if new.unit.name == "p=0":
            raise StorageError("the connection broke")
        undo(self, new, location)

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "_fetch", sleep)
        patch.setattr(LocationSwap, "undo", fail)
        with pytest.raises(RunConflictError, match=r"no longer holds the lock.*p=0: StorageError: the conn"):
            encrypt_table(lake.spark, "t", policy)
    assert sorted(row.id for row in rows(lake)) == [*sorted(row.id for row in before), 77]


def test_driver_that_has_lost_its_lock_undoes_no_swap(
    lake: Lake, policy: Policy, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has recorded its swaps meanwhile: a unit that is recorded as swapped does not go back to clear files."""
    before, prove_swapped, slept = rows(lake), UnitRewriter._prove_swapped, list[str]()

    def sleep(self: UnitRewriter, chunk: Any, failed: Any) -> Any:
        if not slept:
            slept.append("once")
            (file,) = data_files(lake.path("t") / "p=3")
            file.with_name("part-late.parquet").write_bytes(file.read_bytes())
            clock.now += 1_000
            kill_during(lambda: encrypt_table(lake.spark, "t", policy), clock, before_late_commits)
            assert audits(lake, policy) == ["encrypt"] * UNITS
        return prove_swapped(self, chunk, failed)

    with monkeypatch.context() as patch:
        patch.setattr(UnitRewriter, "_prove_swapped", sleep)
        with pytest.raises(RunConflictError, match="no longer holds the lock"):
            encrypt_table(lake.spark, "t", policy)
    assert rows(lake) == before
    assert encrypt_table(lake.spark, "t", policy).outcome in ("done", "nothing to do")
    assert len(rows(lake)) == len(before) + 1
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_job_that_fails_as_a_whole_fails_for_one_unit_alone(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that kills the workers is in one unit, and the others of its batch are done."""
    before = rows(lake)

    def rewrite(spark: Any, orders: Sequence[FileOrder], *more: Any) -> Any:
        if any("p=1" in order.source for order in orders):
            raise StorageError("the executors died")
        return rewrite_in_tasks(spark, orders, *more)

    with monkeypatch.context() as patch:
        patch.setattr(native_engine, "rewrite_in_tasks", rewrite)
        report = pass_over(lake, policy)
    assert [(unit["unit"], unit["message"]) for unit in report.quarantined] == [("p=1", "the executors died")]
    assert sorted(unit["unit"] for unit in report.units) == ["p=0", "p=2", "p=3"]
    assert pass_over(lake, policy).outcome == "done"
    end_well(lake, policy, before)


@pytest.mark.slow
@pytest.mark.parametrize("step", [*STEPS, "a half of the swap"])
def test_driver_that_dies_with_a_batch_in_flight_loses_nothing(
    lake: Lake, policy: Policy, clock: Clock, step: str
) -> None:
    """After each step of four units, also where the metastore had changed two of them: the next run settles each."""
    before = rows(lake)

    def half(monkeypatch: pytest.MonkeyPatch) -> None:
        move_partitions = Catalog.move_partitions

        def die(self: Catalog, table: Any, moves: Sequence[PartitionMove]) -> Any:
            move_partitions(self, table, moves[: UNITS // 2])
            raise Killed

        monkeypatch.setattr(Catalog, "move_partitions", die)

    kill_during(lambda: encrypt_table(lake.spark, "t", policy), clock, {**STEPS, "a half of the swap": half}[step])
    assert rows(lake) == before
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    end_well(lake, policy, before)
    lake.spark.catalog.clearCache()
