"""Old files moved out of the table's folder at once, whatever kills the run on the way, and disposed of by expire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import ConfigError, PlanError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite import moved_files
from sparkcrypt.runs.rewrite.moved_files import move_old, refuse_other_file_systems
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock, Killed, after_record, after_swap, kill
from tests.spark.support import Lake, assert_encrypted, assert_plaintext, data_files, refusal, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill, tagged

pytestmark = pytest.mark.spark

TABLES = {
    "partitioned using": (PARTITIONED["using"], False),
    "partitioned hive": (PARTITIONED["hive"], False),
    "external": (UNPARTITIONED["using"], True),
    "managed": (UNPARTITIONED["hive"], False),
}


def old_of(lake: Lake, run_id: str, *, external: bool = False) -> Path:
    """Return where a run keeps the old files."""
    beside = lake.root / ".sparkcrypt" / "external" if external else lake.root / "db" / ".sparkcrypt" / "t"
    return beside / f"old-{run_id}"


@pytest.mark.parametrize("kind", TABLES)
def test_old_files_leave_the_tables_folder(lake: Lake, kind: str) -> None:
    """They are beside the table then, as the report says; nothing brings them back, and expire deletes them."""
    create, external = TABLES[kind]
    fill(lake, create, external=external)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    before = rows_of(lake.spark.table("t"))
    report = encrypt_table(lake.spark, "t", policy, move_old=True)
    old = old_of(lake, report.run_id, external=external)
    assert report.old_location is not None and Path(report.old_location.removeprefix("file:")) == old
    assert_plaintext(old)
    assert rows_of(lake.spark.table("t")) == before
    left = data_files(lake.root / "external" if external else lake.path("t"))
    assert not left if kind != "managed" else assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())
    if "partitioned" in kind:
        lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
        lake.sql("MSCK REPAIR TABLE t")
        assert lake.spark.table("t").count() == 2
        assert [str(partition.values) for partition in Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))]
    done = expire_run(lake.spark, "t", policy)
    assert done.files == report.files_rewritten
    assert not old.exists()
    assert verify_table(lake.spark, "t", policy).ok


def test_readers_that_listed_before_fail_loudly(lake: Lake) -> None:
    """A session that planned a read before the run gets an error, never fewer rows; refreshed it reads them all."""
    fill(lake, PARTITIONED["using"])
    old = lake.spark.newSession()
    old.sql(f"USE {lake.database}")
    frame = old.table("t")
    before = rows_of(frame)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    report = encrypt_table(lake.spark, "t", policy, move_old=True)
    assert [warning for warning in report.warnings if "file not found" in warning]
    assert "does not exist" in refusal(frame.collect)
    old.catalog.refreshTable("t")
    assert rows_of(old.table("t")) == before


def before_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the run when a unit was swapped and audited, and its old files were not moved."""

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(moved_files, "move_old", killed)


def after_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the run when a unit's old files were moved, and the journal does not say so."""

    def moved(*arguments: Any) -> None:
        move_old(*arguments)
        raise Killed

    monkeypatch.setattr(moved_files, "move_old", moved)


STEPS = {
    "after the swap": after_swap,
    "after unit_swapped": after_record("unit_swapped"),
    "before the move": before_move,
    "after the move": after_move,
    "after unit_moved": after_record("unit_moved"),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_run_finishes_the_move(lake: Lake, clock: Clock, step: str) -> None:
    """Wherever it was killed, the same command, even without the option, ends with every old file moved."""
    policy, before = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, STEPS[step], move_old=True)
    assert rows_of(lake.spark.table("t")) == before
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "done"
    assert not data_files(lake.path("t"))
    assert len(data_files(old_of(lake, report.run_id))) == 4
    assert rows_of(lake.spark.table("t")) == before
    assert expire_run(lake.spark, "t", policy).files == 4


def test_killed_rename_is_finished_too(lake: Lake, clock: Clock) -> None:
    """A managed table's old folder is where it belongs by the swap itself."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    kill(lake, policy, clock, after_swap, move_old=True)
    report = encrypt_table(lake.spark, "t", policy)
    assert rows_of(lake.spark.table("t")) == before
    assert report.old_location is not None
    assert_plaintext(report.old_location.removeprefix("file:"))
    assert expire_run(lake.spark, "t", policy).files == 4


def test_file_that_comes_back_to_the_old_place_is_told(lake: Lake, clock: Clock) -> None:
    """Between a kill and the next run a stale writer makes the old folder anew: the file is named, nothing is lost."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_move, move_old=True)
    gone = next(folder for folder in ("p=0", "p=1") if not (lake.path("t") / folder).exists())
    with lake.stranger() as stranger:
        stranger.sql("SELECT 9 AS id, 'late' AS email, 'n' AS note").write.parquet(str(lake.path("t") / gone))
    with pytest.raises(VerificationError, match=rf"{gone}.*at the old place again: a late commit.*run again"):
        encrypt_table(lake.spark, "t", policy)
    for file in (lake.path("t") / gone).iterdir():
        file.unlink()
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"


def load_anew(lake: Lake) -> None:
    """Drop a partition and insert one row into it: its default folder, where the old files were, is in use again."""
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql("INSERT INTO t PARTITION (p = 0) VALUES (50, 'new@x', 'n')")


def test_old_folder_that_is_in_use_again_is_not_moved(lake: Lake, clock: Clock) -> None:
    """Between a kill and the next run a partition came to use its old folder: the new row there is never moved away."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, before_move, move_old=True)
    load_anew(lake)
    seen = sorted(row.id for row in lake.spark.table("t").select("id").collect())
    assert 50 in seen
    report = encrypt_table(lake.spark, "t", policy, keep_going=True)
    assert [unit["unit"] for unit in report.quarantined] == ["p=0"]
    assert sorted(row.id for row in lake.spark.table("t").select("id").collect()) == seen
    assert not data_files(lake.path("t") / "p=1")


def test_folder_made_anew_after_a_killed_move_is_the_tables(lake: Lake, clock: Clock) -> None:
    """Old files are moved already, so what is at their place is what the table reads: nobody is told to move it."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_move, move_old=True)
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql("INSERT INTO t PARTITION (p = 0) VALUES (50, 'new@x', 'n')")
    seen = sorted(row.id for row in lake.spark.table("t").select("id").collect())
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert sorted(row.id for row in lake.spark.table("t").select("id").collect()) == seen


def test_old_folder_that_comes_into_use_during_the_move_is_put_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metastore is asked again after the rename: what came into use meanwhile is where its user looks for it."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    move = moved_files.move_old

    def moved(files: Any, unit: str, old: str, to: str) -> None:
        if unit == "p=0":
            load_anew(lake)
        move(files, unit, old, to)

    monkeypatch.setattr(moved_files, "move_old", moved)
    encrypt_table(lake.spark, "t", policy, move_old=True, keep_going=True)
    assert 50 in [row.id for row in lake.spark.table("t").select("id").collect()]
    assert not data_files(lake.path("t") / "p=1")


def test_move_that_fails_leaves_the_run_unfinished_until_it_is_done(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that goes on after what fails does not end such a run: the next one moves the files, then goes on."""
    policy, before = tagged(lake, PARTITIONED["using"])
    options = PassOptions(run=RunOptions(keep_going=True, move_old=True))

    def refused(*_: Any) -> None:
        raise SparkcryptError("the file system refused")

    with monkeypatch.context() as patch:
        patch.setattr(moved_files, "move_old", refused)
        report = backfill(lake.spark, policy, tables=["t"], options=options)
    assert [failure.error for failure in report.failed] == ["RunConflictError"]
    assert "old files could not be moved: SparkcryptError: the file system refused" in report.failed[0].message
    assert len(data_files(lake.path("t"))) == 4
    report = backfill(lake.spark, policy, tables=["t"], options=replace(options, run=RunOptions(keep_going=True)))
    assert report.outcome == "done"
    assert not data_files(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before
    assert expire_run(lake.spark, "t", policy).files == 4


def test_second_run_moves_the_files_of_the_first(lake: Lake) -> None:
    """A table that a run has swapped already is swapped again, its files moved, and both runs expire."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy, move_old=True)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    second = encrypt_table(lake.spark, "t", policy, move_old=True)
    assert_encrypted(old_of(lake, second.run_id), policy, {"email": "pii"}, visible=())
    assert rows_of(lake.spark.table("t")) == before
    assert expire_run(lake.spark, "t", policy).files == 4 + second.files_rewritten
    assert verify_table(lake.spark, "t", policy).ok


@pytest.mark.parametrize("moved", ["at once", "after the grace"])
def test_commit_after_the_move_is_a_problem(lake: Lake, moved: str) -> None:
    """Whether its writer adds rows or overwrites cannot be seen where old files are gone: nothing is reconciled."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy, move_old=moved == "at once")
    if moved == "after the grace":
        policy = lake.changed("untagged:", "old_files: {grace: 0s}\nuntagged:")
        encrypt_table(lake.spark, "t", policy)
    late = lake.path("t") / "p=0"
    assert not late.exists()
    with lake.stranger() as stranger:
        stranger.sql("SELECT 9 AS id, 'late' AS email, 'n' AS note").write.parquet(str(late))
    (problem,) = encrypt_table(lake.spark, "t", policy, keep_going=True).problems
    assert (problem["kind"], len(problem["came"])) == ("came to an emptied folder", 1)
    assert "--keep new --reason" in problem["message"]
    assert rows_of(lake.spark.table("t")) == before
    done = expire_run(lake.spark, "t", policy)
    assert list(done.refused) == ["p=0"]
    with pytest.raises(VerificationError, match="--keep new"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "put it back"))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "its row was inserted"))
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert not data_files(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before


def test_copy_of_a_directory_has_no_old_files_to_move(lake: Lake) -> None:
    """With --output the source stays for its readers; the refusal says so before anything is written."""
    with pytest.raises(ConfigError, match="--output makes a copy: the source folder stays"):
        encrypt_table(lake.spark, None, lake.policy(), path="/nowhere", output="/out", move_old=True)


def test_directory_renamed_under_exclusive_has_moved_already(lake: Lake) -> None:
    """The swap of a bare folder is that move."""
    tables = f"  files.x: {{location: '{lake.root / 'in'}', tags: {{email: pii}}}}\n"
    policy = lake.policy(tables=tables)
    with lake.stranger() as stranger:
        stranger.sql("SELECT 1 AS id, 'x' AS email").write.parquet(str(lake.root / "in"))
    report = encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"), exclusive=True, move_old=True)
    assert report.old_location is not None and report.old_location.endswith(f"/.sparkcrypt/in/old-{report.run_id}")
    assert_plaintext(report.old_location.removeprefix("file:"))


def test_other_file_systems_are_refused() -> None:
    """No rename leads from one file system to another, so nothing is begun."""
    here = Unit("p=0", "hdfs://a/t/p=0", None, "p=0", {}, ())
    refuse_other_file_systems((here,), "hdfs://a/t")
    with pytest.raises(PlanError, match="p=0: its folder hdfs://a/t/p=0 is on another file system"):
        refuse_other_file_systems((here,), "hdfs://b/t")


def test_journal_tells_of_the_move(lake: Lake) -> None:
    """Each unit has one record of it, after that of its swap."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    report = encrypt_table(lake.spark, "t", policy, move_old=True)
    journal = Journal.open(
        TableLog.open(LocalStateStore(policy.run_state), str(Catalog(lake.spark).table("t").uuid), None), report.run_id
    )
    steps = [(record.unit, record.kind) for record in journal.records if record.kind in ("unit_swapped", "unit_moved")]
    assert sorted(steps, key=lambda step: step[0] or "") == [
        (unit, kind) for unit in ("p=0", "p=1") for kind in ("unit_swapped", "unit_moved")
    ]
