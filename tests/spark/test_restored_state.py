"""State directories that tell less than what has happened: restored from a copy, or cut; no row may be lost by them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.past_run import past_runs
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import Engine
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock
from tests.spark.restored_state import restore, states
from tests.spark.support import SECRET, Lake, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

KINDS = {
    "partitioned": (PARTITIONED["using"], False),
    "hive partitioned": (PARTITIONED["hive"], False),
    "external": (UNPARTITIONED["using"], True),
    "managed": (UNPARTITIONED["using"], False),
}
CASES = [(kind, "native") for kind in KINDS] + [("partitioned", "spark"), ("managed", "spark")]


def made(lake: Lake, kind: str) -> tuple[Policy, list[Any]]:
    """Make a plaintext table with a tag; return its policy and rows."""
    create, external = KINDS[kind]
    fill(lake, create, external=external)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy, rows_of(lake.spark.table("t"))


def locations(lake: Lake) -> list[str]:
    """Return where the metastore says that the table's files are."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    if not table.partition_columns:
        return [table.location]
    return [partition.location for partition in catalog.partitions(table)]


def assert_whole(lake: Lake, policy: Policy, before: list[Any]) -> None:
    """Assert that every row is there and encrypted, and that the audit tells of every folder in use and every file."""
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    checked = verify_table(lake.spark, "t", policy, manifest=True)
    assert checked.ok
    assert checked.manifest is not None
    assert (checked.manifest.missing, checked.manifest.changed, checked.manifest.unlisted) == ((), (), ())
    store, uuid = open_state_store(policy.run_state), Catalog(lake.spark).table("t").uuid or ""
    units = [signed.entry.get("unit", {}) for signed in list_entries(store, uuid, None)]
    told = {unit["new_location"].rstrip("/") for unit in units if "new_location" in unit}
    assert {location.replace("file:///", "file:/").rstrip("/") for location in locations(lake)} <= {
        location.replace("file:///", "file:/") for location in told
    }


@pytest.mark.parametrize(("kind", "engine"), CASES)
def test_state_of_the_middle_of_a_run_loses_nothing(
    lake: Lake,
    clock: Clock,
    copies: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    engine: Engine,
) -> None:
    """A state directory that is restored from a copy taken during a run, and the same command: every row is there."""
    policy, before = made(lake, kind)
    assert encrypt_table(lake.spark, "t", policy, engine=engine).outcome == "done"
    taken = dict(copies)
    for step in ("unit_listed", "unit_staged", "unit_verified", "unit_swapping"):
        for locks in (True, False):
            clock.now += 1_000
            restore(policy, taken[step], locks=locks)
            report = encrypt_table(lake.spark, "t", policy, engine=engine)
            assert report.outcome == "done", (step, locks)
            assert_whole(lake, policy, before)
    clock.now += 1_000
    expire_run(lake.spark, "t", policy)
    assert_whole(lake, policy, before)


@pytest.mark.parametrize(("kind", "engine"), CASES)
def test_journal_that_lost_its_end_loses_nothing(lake: Lake, clock: Clock, kind: str, engine: Engine) -> None:
    """Whether 1, 2 or 6 records are cut off the log of a finished run, the same command leaves every row there."""
    policy, before = made(lake, kind)
    encrypt_table(lake.spark, "t", policy, engine=engine)
    whole = shutil.copytree(states(policy), lake.root / "whole")
    uuid = Catalog(lake.spark).table("t").uuid
    records = sorted((whole / "log" / str(uuid)).glob("*.json"))
    for cut in range(1, min(7, len(records))):
        clock.now += 1_000
        restore(policy, whole, locks=cut % 2 == 0)
        for record in records[-cut:]:
            (states(policy) / record.relative_to(whole)).unlink()
        again = encrypt_table(lake.spark, "t", policy, engine=engine)
        assert again.outcome in ("done", "nothing to do"), cut
        assert_whole(lake, policy, before)
    expire_run(lake.spark, "t", policy)
    assert_whole(lake, policy, before)


def lose_steps(lake: Lake, policy: Policy, run_id: str, *, every: bool = False) -> None:
    """Take one step of a run away, or every one; those stay of which the audit's entries are made."""
    store, table_id = open_state_store(states(policy).as_posix()), str(Catalog(lake.spark).table("t").uuid)
    records = Journal.open(TableLog.open(store, table_id, None), run_id).records
    lost = [record for record in records if record.kind not in ("unit_listed", "unit_verified", "unit_swapped")]
    for record in lost if every else lost[1:2]:
        store.delete(record.name)


@pytest.mark.parametrize("every", [False, True], ids=["one step lost", "every step lost"])
def test_commit_to_the_old_folder_of_a_run_not_acted_upon_is_a_problem(lake: Lake, every: bool) -> None:
    """The audit tells which files the run had left there; a person decides, and it is told no more."""
    policy, before = made(lake, "hive partitioned")
    report = encrypt_table(lake.spark, "t", policy)
    lose_steps(lake, policy, report.run_id, every=every)
    first = encrypt_table(lake.spark, "t", policy)
    assert (first.outcome, first.problems) == ("nothing to do", ())
    assert any(report.run_id in warning for warning in first.warnings)

    old = lake.path("t") / "p=0"
    late = old / "part-late.snappy.parquet"
    shutil.copy(next(old.glob("part-*")), late)
    told = encrypt_table(lake.spark, "t", policy, keep_going=True)
    (problem,) = told.problems
    assert (told.outcome, problem["unit"], problem["came"]) == ("incomplete", "p=0", [late.name])
    assert old.as_posix() in problem["message"]
    assert encrypt_table(lake.spark, "t", policy, keep_going=True).problems[0]["problem"] == problem["problem"]
    with pytest.raises(VerificationError, match="--keep new"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "put it back"))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "its rows were inserted"))
    after = encrypt_table(lake.spark, "t", policy)
    assert (after.outcome, after.problems) == ("nothing to do", ())

    for file in old.glob("part-0*"):  # an erasure in the old folder of rows that the table still has
        file.unlink()
        break
    (erased,) = encrypt_table(lake.spark, "t", policy, keep_going=True).problems
    assert erased["gone"] and not erased["came"]
    with past_runs(lake.spark, "t", policy, "accept") as runs:
        runs.give_up_lost("the disk was damaged")
    assert_whole(lake, policy, before)


def test_rename_after_a_run_not_acted_upon_takes_its_problems_along(lake: Lake) -> None:
    """A problem that was opened before the table was renamed names the folder as it is called since."""
    policy, before = made(lake, "partitioned")
    report = encrypt_table(lake.spark, "t", policy)
    lose_steps(lake, policy, report.run_id)
    old = lake.path("t") / "p=0"
    file = next(old.glob("part-*"))
    file.rename(old / "part-late.snappy.parquet")
    (first,) = encrypt_table(lake.spark, "t", policy, keep_going=True).problems
    assert first["old_location"].endswith("/t/p=0")
    lake.sql("ALTER TABLE t RENAME TO u")
    told = encrypt_table(lake.spark, "u", policy, keep_going=True)
    (problem,), (quarantined,) = told.problems, told.quarantined
    assert problem["problem"] == first["problem"]
    assert str(lake.path("u") / "p=0") in quarantined["message"]
    (again,) = encrypt_table(lake.spark, "u", policy, dry_run=True).problems  # which looks after no old files
    assert (again["table"], again["old_location"]) == (problem["table"], problem["old_location"])
    assert again["old_location"].endswith("/u/p=0")
    assert f"--table {again['table']} " in again["message"] and str(lake.path("u") / "p=0") in again["message"]
    resolve_problem(lake.spark, "u", policy, problem["problem"], Decision("new", "the table is right"))
    after = encrypt_table(lake.spark, "u", policy, keep_going=True)
    assert (after.outcome, after.problems) == ("nothing to do", ())
    assert rows_of(lake.spark.table("u")) == before


def test_erasure_before_a_run_not_acted_upon_is_a_problem_that_can_be_resolved(lake: Lake) -> None:
    """Whether a run that is not acted upon has replaced the rows since, nobody can tell; a person can."""
    policy, before = made(lake, "partitioned")
    encrypt_table(lake.spark, "t", policy)
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    second = encrypt_table(lake.spark, "t", policy)
    lose_steps(lake, policy, second.run_id)
    next((lake.path("t") / "p=1").glob("part-*")).unlink()
    told = encrypt_table(lake.spark, "t", policy, keep_going=True)
    (problem,) = told.problems
    assert (told.outcome, problem["unit"], len(problem["gone"])) == ("incomplete", "p=1", 1)
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "the table is right"))
    after = encrypt_table(lake.spark, "t", policy, keep_going=True)
    assert (after.outcome, after.problems) == ("nothing to do", ())
    expire_run(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_old_files_in_use_again_of_a_run_not_acted_upon_are_a_problem(lake: Lake) -> None:
    """DROP PARTITION and INSERT bring back rows in clear: they are not encrypted a second time."""
    policy, before = made(lake, "partitioned")
    report = encrypt_table(lake.spark, "t", policy)
    lose_steps(lake, policy, report.run_id)
    lake.sql("ALTER TABLE t DROP PARTITION (p=0)")
    lake.sql(f"INSERT INTO t VALUES (50, '{SECRET}-50', 'new', 0)")
    told = encrypt_table(lake.spark, "t", policy, keep_going=True)
    (problem,) = told.problems
    assert (told.outcome, problem["unit"], len(problem["came"])) == ("incomplete", "p=0", 2)
    with pytest.raises(VerificationError, match="--keep old"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "they are old"))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "these rows count"))
    after = encrypt_table(lake.spark, "t", policy, keep_going=True)
    assert (after.outcome, after.problems) == ("done", ())
    assert sorted(row.id for row in lake.spark.table("t").collect()) == sorted([*(row.id for row in before), 50])
