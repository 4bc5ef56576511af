"""Old files come back by DROP PARTITION and INSERT: not after the grace, and until then no run takes them for rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.runs.old_folders import old_folder as reach_module
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.spark.files.hadoop import HadoopFiles
from tests.spark.late_writers import ids
from tests.spark.passes import the_pass, the_problem, with_grace
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, data_files
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


def drop_and_insert(lake: Lake) -> None:
    """Load a partition anew in the way that brings old files back."""
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql(f"INSERT INTO t VALUES (50, '{SECRET}-50', 'new', 0)")


@pytest.mark.parametrize("keep", ["new", "old"])
def test_rows_that_came_back_are_not_taken_for_the_tables(lake: Lake, keep: Any) -> None:
    """A pass leaves a unit with files of an earlier run's source list as it was, until someone decides."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    drop_and_insert(lake)
    with_old = sorted([*(row.id for row in before), 50])
    assert ids(lake) == with_old
    report = the_pass(lake, policy)
    problem = the_problem(report)
    assert (problem["kind"], problem["unit"], len(problem["came"])) == ("old files are in use again", "p=0", 2)
    assert report.tables[0].units_left == 1
    assert (lake.path("t") / "p=0" / problem["came"][0]).read_bytes()[-4:] == b"PAR1"
    assert the_problem(the_pass(lake, policy)) == problem
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision(keep, "looked at"))
    after = with_old if keep == "old" else [1, 3, 50]
    assert the_pass(lake, policy).outcome in ("done", "nothing to do")
    assert ids(lake) == after
    assert verify_table(lake.spark, "t", policy).ok
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == after


def test_old_files_that_another_table_reads_stay(lake: Lake) -> None:
    """A decision to move them out is refused while another table points to the folder, and carried out afterwards."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    drop_and_insert(lake)
    problem = the_problem(the_pass(lake, policy))["problem"]
    place = lake.path("t") / "p=0"
    lake.sql(f"CREATE TABLE other (id INT, email STRING, note STRING) USING parquet LOCATION 'file:{place}'")
    files = data_files(place)
    with pytest.raises(VerificationError, match=r"other points to .*p=0, so it stays where it is"):
        resolve_problem(lake.spark, "t", policy, problem, Decision("new", "looked at"))
    assert data_files(place) == files
    lake.sql("DROP TABLE other")
    resolve_problem(lake.spark, "t", policy, problem, Decision("new", "looked at"))
    assert ids(lake) == [1, 3, 50]
    assert len(data_files(place)) == len(files) - 2


def test_partition_that_is_added_again_is_seen(lake: Lake) -> None:
    """MSCK REPAIR brings a dropped partition's old files back, nothing more: that is seen too."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql("MSCK REPAIR TABLE t")
    assert the_problem(the_pass(lake, policy))["kind"] == "old files are in use again"


def test_rows_that_a_rollback_put_back_are_the_tables(lake: Lake) -> None:
    """After a rollback old files are in use, and the next pass encrypts them without a question."""
    policy, before = tagged(lake, PARTITIONED["using"])
    first = encrypt_table(lake.spark, "t", policy)
    rollback_run(lake.spark, "t", policy, first.run_id)
    assert the_pass(lake, policy).outcome == "done"
    assert ids(lake) == sorted(row.id for row in before)


@pytest.mark.parametrize("kind", ["partitioned", "external"])
def test_old_files_are_out_of_reach_after_the_grace(lake: Lake, kind: str) -> None:
    """The first pass after the grace moves them; a partition that is loaded anew has its new row alone."""
    create = PARTITIONED["using"]
    if kind == "external":
        create = f"{UNPARTITIONED['using']} LOCATION '{(lake.root / 'external').as_uri()}'"
    policy, before = tagged(lake, create)
    policy = with_grace(lake, policy, "1h")
    first = encrypt_table(lake.spark, "t", policy)
    place = lake.path("t") / "p=0" if kind == "partitioned" else lake.root / "external"
    the_pass(lake, policy)
    assert_plaintext(place)
    policy = lake.changed("grace: 1h", "grace: 1s")
    time.sleep(1)  # the grace
    assert the_pass(lake, policy, changed=True).outcome == "nothing to do"
    assert not place.exists()
    assert len(list(lake.root.rglob(f".sparkcrypt/*/old-{first.run_id}/**/*.parquet"))) == 4
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert ids(lake) == sorted(row.id for row in before)
    if kind == "partitioned":
        drop_and_insert(lake)
        assert ids(lake) == [1, 3, 50]
        assert not the_pass(lake, policy).left_out
    else:
        rollback_run(lake.spark, "t", policy, first.run_id)
        assert ids(lake) == sorted(row.id for row in before)
        assert_plaintext(place)


def test_grace_of_nothing_moves_old_files_at_once(lake: Lake) -> None:
    """``grace: 0s`` is ``--move-old`` for every run."""
    policy, before = tagged(lake, PARTITIONED["using"])
    policy = with_grace(lake, policy, "0s")
    report = the_pass(lake, policy).tables[0]
    assert "/old-" in str(report.old_location)
    assert not any((lake.path("t") / "p=0").glob("*.parquet"))
    assert ids(lake) == sorted(row.id for row in before)


def test_move_that_was_killed_is_written_down(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that is killed between the rename and its record loses nothing, and the next one opens no problem."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    policy = with_grace(lake, policy, "1s")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reach_module, "_note_move", killed)
        with pytest.raises(KeyboardInterrupt):
            the_pass(lake, policy)
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert ids(lake) == sorted(row.id for row in before)
    assert expire_run(lake.spark, "t", policy).files == 4


def test_old_files_stay_where_a_rename_is_no_single_step(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store they are not moved, and each report says so."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    policy = with_grace(lake, policy, "1s")
    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda *_: False)
    report: PassReport = the_pass(lake, policy)
    assert report.outcome == "nothing to do"
    assert "where a rename is a copy of each file" in " ".join(report.tables[0].warnings)
    assert_plaintext(Path(lake.path("t")) / "p=0")
    assert_encrypted(lake.root / "db" / ".sparkcrypt" / "t", policy, {"email": "pii"}, visible=["note 1"])
