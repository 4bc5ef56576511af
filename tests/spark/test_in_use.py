"""What is in use is never deleted: folders that tables point to, before, while and after a run would delete them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.killing import Clock, after_record, kill
from tests.spark.restored_state import restore
from tests.spark.support import Lake, data_files, rows_of
from tests.spark.tables import PARTITIONED, tagged

pytestmark = pytest.mark.spark


def disposal(lake: Lake, policy: Any) -> Disposal:
    """Return what deletes folders of a run over the table."""
    target = catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None)
    in_use = InUse(lake.spark, target, OtherTables(lake.spark))
    return Disposal(HadoopFiles(lake.spark), in_use, target.base, "run-x", lambda: None)


def test_only_what_nobody_uses_is_deleted(lake: Lake) -> None:
    """Neither a partition's folder, one above it, one inside it, nor another table's; what is left goes."""
    policy, before = tagged(lake, PARTITIONED["using"])
    lake.sql(f"CREATE TABLE other (id INT) USING parquet LOCATION '{(lake.root / 'other').as_uri()}'")
    lake.sql("INSERT INTO other VALUES (1)")
    shutil.copytree(lake.root / "other", lake.root / "useless")
    inside = lake.path("t") / "p=0" / "inside"
    inside.mkdir()
    folders = [str(path) for path in (lake.path("t") / "p=1", lake.path("t"), inside, lake.root / "other", lake.root)]
    kept = disposal(lake, policy).delete([*folders, str(lake.root / "useless"), str(lake.root / "not there")])
    assert sorted(kept) == sorted(folders)
    assert f"{lake.name('other')} points to" in kept[folders[3]]
    assert not (lake.root / "useless").exists()
    assert rows_of(lake.spark.table("t")) == before
    assert lake.spark.table("other").count() == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_folder_with_more_than_data_is_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    """Whether folders are renamed aside or files deleted one by one; marks and summaries of writers hold nothing."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda *_: at_once)
    folder = Path(shutil.copytree(lake.path("t") / "p=0", lake.root / "db" / "copy"))
    files = data_files(folder)
    for name in ("_SUCCESS", "_metadata", "_archive/part-0.parquet"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    kept = disposal(lake, policy).delete([folder.as_uri()])
    assert "/copy/_archive: lies beside data" in kept[folder.as_uri()]
    assert data_files(folder) == files and (folder / "_archive" / "part-0.parquet").exists()
    shutil.rmtree(folder / "_archive")
    assert disposal(lake, policy).delete([folder.as_uri()]) == {} and not folder.exists()


def test_folder_that_comes_into_use_meanwhile_is_put_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody points a partition to a folder that was renamed aside: it is renamed back, with every file."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    folder = Path(shutil.copytree(lake.path("t") / "p=0", lake.root / "db" / "copy"))
    files = [file.name for file in data_files(folder)]

    def point(*_: str) -> None:
        lake.sql(f"ALTER TABLE t PARTITION (p = 0) SET LOCATION '{folder.as_uri()}'")

    kept = disposal(lake, policy).delete([folder.as_uri()], inspect=point)
    assert list(kept) == [folder.as_uri()]
    assert [file.name for file in data_files(folder)] == files
    lake.spark.catalog.refreshTable("t")
    assert lake.spark.table("t").count() == 4


def test_what_a_killed_driver_set_aside_is_found_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver is killed between rename and deletion: what is in use by then comes back, what is not goes."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    folder = Path(shutil.copytree(lake.path("t") / "p=0", lake.root / "db" / "copy"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for used in (False, True):
        with monkeypatch.context() as patch:
            rename = HadoopFiles.rename

            def once(self: HadoopFiles, source: str, target: str, rename: Any = rename) -> None:
                if "/trash-" in source:
                    raise KeyboardInterrupt  # it was killed: it puts nothing back
                rename(self, source, target)

            patch.setattr(HadoopFiles, "rename", once)
            with pytest.raises(KeyboardInterrupt):
                disposal(lake, policy).delete([folder.as_uri()], inspect=killed)
        assert not folder.exists()
        if used:
            lake.sql(f"ALTER TABLE t PARTITION (p = 0) SET LOCATION '{folder.as_uri()}'")
            disposal(lake, policy).restore(folder.as_uri())
            assert data_files(folder)
        else:
            assert disposal(lake, policy).delete([folder.as_uri()]) == {}
            assert not folder.exists()
            shutil.copytree(lake.path("t") / "p=0", folder)


def test_what_was_set_aside_is_looked_at_before_it_goes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer made a folder anew that a killed driver had set aside: a late commit in the latter is not lost."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    folder = Path(shutil.copytree(lake.path("t") / "p=0", lake.root / "db" / "copy"))
    mine = disposal(lake, policy)
    aside = Path(mine._place_aside(folder.as_uri()).removeprefix("file:"))
    shutil.copytree(folder, aside)

    def refuse(gone: str, place: str) -> None:
        if place.rstrip("/").endswith(aside.name):
            raise VerificationError("a late commit is there")

    with pytest.raises(VerificationError, match="late commit"):
        mine.delete([folder.as_uri()], inspect=refuse)
    assert data_files(folder) and data_files(aside)
    assert mine.delete([folder.as_uri()]) == {}
    assert not folder.exists() and not aside.exists()


def test_what_cannot_be_proven_is_an_open_problem(
    lake: Lake,
    clock: Clock,
    copies: dict[str, Path],
) -> None:
    """New files in use that differ from the source: no run deletes them, and every run says so until it is closed."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    clock.now += 1_000
    restore(policy, copies["unit_staged"])
    new = Path(Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))[0].location.removeprefix("file:"))
    gone = data_files(new)[0]
    gone.unlink()
    left = rows_of(lake.spark.read.parquet(str(new)))
    for _ in range(2):
        report = backfill(lake.spark, policy, tables=["t"])
        assert (report.outcome, report.exit_code) == ("incomplete", 74)
        (told,) = report.tables[0].quarantined
        assert told["unit"] == "p=0"
        assert "its swap was cut off" in told["message"] and "nothing of these is deleted" in told["message"]
        for resume in ("auto", "never"):
            with pytest.raises(VerificationError, match="backfill resolve"):
                encrypt_table(lake.spark, "t", policy, resume=resume)
        assert rows_of(lake.spark.read.parquet(str(new))) == left
        assert len(data_files(lake.path("t"))) == 4
    (problem,) = report.tables[0].problems
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "the row should be gone"))
    assert rows_of(lake.spark.read.parquet(str(new))) == left
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"


def test_staged_folder_that_another_table_reads_stays(lake: Lake, clock: Clock) -> None:
    """A run was killed after staging, and somebody made a table of what it had staged: that is left to him."""
    policy, before = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_record("unit_verified"))
    (staged,) = (lake.root / "db" / ".sparkcrypt" / "t").glob("*/p=0")
    count = len(data_files(staged))
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE other (id INT, email STRING, note STRING) USING parquet LOCATION 'file:{staged}'")
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert len(data_files(staged)) == count
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok


def test_two_attempts_with_one_token_share_no_folder(lake: Lake, clock: Clock) -> None:
    """A driver whose token comes again, since the locks were restored, stages elsewhere."""
    policy, before = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_record("unit_swapping"))
    first = {path.name for path in (lake.root / "db" / ".sparkcrypt" / "t").iterdir()}
    shutil.rmtree(Path(policy.run_state) / "locks")
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    second = {path.name for path in (lake.root / "db" / ".sparkcrypt" / "t").iterdir()}
    assert first < second
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
