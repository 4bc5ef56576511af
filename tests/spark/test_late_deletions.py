"""Nothing is deleted that is in use, or comes into use."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import StorageError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.orphans import Orphan, find_orphans
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.killing import Clock, after_record, kill
from tests.spark.late_writers import ids
from tests.spark.passes import the_pass
from tests.spark.restored_state import restore
from tests.spark.support import Lake, data_files, rows_of
from tests.spark.tables import PARTITIONED, tagged

pytestmark = pytest.mark.spark


def meanwhile(patch: pytest.MonkeyPatch, aside: str, happens: Callable[[Path], object]) -> None:
    """Let something happen to a folder right before it is renamed to a place whose path has a part."""
    rename = HadoopFiles.rename

    def renamed(self: HadoopFiles, source: str, target: str) -> None:
        if aside in target:
            happens(Path(source.removeprefix("file:")))
        rename(self, source, target)

    patch.setattr(HadoopFiles, "rename", renamed)


def begin(folder: Path) -> Path:
    """Let a writer make its own folder."""
    (folder / "_temporary" / "0").mkdir(parents=True, exist_ok=True)
    return folder / "_temporary"


def left_by_a_dropped_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> tuple[Policy, Path]:
    """Drop an external table after a run, and return where its old files are."""
    where = lake.path("external").as_uri()
    policy, _ = tagged(lake, f"{PARTITIONED['using']} LOCATION '{where}'")
    encrypt_table(lake.spark, "t", policy)
    lake.sql("DROP TABLE t")
    real = time.time
    monkeypatch.setattr("sparkcrypt.runs.old_folders.orphans.time.time", lambda: real() + 30 * 86_400)
    return policy, lake.path("external") / "p=0"


def deleted(lake: Lake, policy: Policy, folder: Path) -> Orphan:
    """Delete orphans, and return what became of one."""
    found = find_orphans(lake.spark, policy, databases=(lake.database,), delete=True)
    return next(orphan for orphan in found if orphan.folder.removeprefix("file:").removeprefix("//") == str(folder))


@pytest.mark.parametrize("what", ["in use", "writer", "commit", "same length"])
def test_orphan_that_is_none_any_more_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Another table comes to use it, a writer begins or commits there: it is where it was, and is named."""
    policy, old = left_by_a_dropped_table(lake, monkeypatch)
    before = data_files(old)

    def use(_: Path) -> None:
        lake.sql(f"CREATE TABLE user (id INT, email STRING) USING parquet LOCATION 'file:{old}'")

    def replace(folder: Path) -> None:
        first = data_files(folder)[0]
        first.rename(first.with_name("part-late.parquet"))

    happens = {
        "in use": use,
        "writer": begin,
        "commit": lambda folder: (folder / "part-late.parquet").write_bytes(b"PAR1"),
        "same length": replace,
    }[what]
    done: list[Path] = []

    def once(folder: Path) -> None:
        if folder == old and not done:
            done.append(folder)
            happens(folder)

    with monkeypatch.context() as patch:
        meanwhile(patch, "/trash-orphans/", once)
        told = deleted(lake, policy, old)
    assert done and not told.deleted
    assert {"in use": "user points to", "writer": "_temporary"}.get(what, "came or went") in str(told.why_kept) or (
        what == "writer" and "came or went" in str(told.why_kept)
    )
    assert len(data_files(old)) == len(before) + (what == "commit")


def test_orphan_that_cannot_be_listed_is_named_beside_the_others(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system refuses to list one folder: it stays, with the reason, and another one goes."""
    policy, old = left_by_a_dropped_table(lake, monkeypatch)
    walk = HadoopFiles.walk

    def refuses(self: HadoopFiles, path: str) -> Any:
        if path.rstrip("/").endswith("external/p=0"):
            raise StorageError(f"cannot list {path}: Permission denied")
        return walk(self, path)

    monkeypatch.setattr(HadoopFiles, "walk", refuses)
    told = deleted(lake, policy, old)
    assert (told.deleted, told.files) == (False, 0) and "Permission denied" in str(told.why_kept)
    assert data_files(old) and not data_files(old.with_name("p=1"))


def test_orphan_in_which_a_writer_is_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which, or above which, a writer has its own folder is named, and goes when that is gone."""
    policy, old = left_by_a_dropped_table(lake, monkeypatch)
    for folder in (old, old.parent):
        writing = begin(folder)
        told = deleted(lake, policy, old)
        assert f"{writing} is there" in str(told.why_kept)
        assert data_files(old)
        (writing / "0").rmdir()
        writing.rmdir()
    assert deleted(lake, policy, old).deleted


def test_expire_sees_a_writer_that_begins_late(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that makes its folder after expire has looked, however long after the swap, finds the old folder."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    old = lake.path("t") / "p=0"
    files = data_files(old)

    def late(folder: Path) -> None:
        if folder == old:
            os.utime(begin(folder), (time.time() + 3600,) * 2)

    with monkeypatch.context() as patch:
        meanwhile(patch, "/trash-", late)
        with pytest.raises(VerificationError, match="p=0/_temporary is there"):
            expire_run(lake.spark, "t", policy)
    assert data_files(old) == files
    with pytest.raises(VerificationError, match="p=0/_temporary is there"):
        expire_run(lake.spark, "t", policy)
    (old / "_temporary" / "0").rmdir()
    (old / "_temporary").rmdir()
    assert expire_run(lake.spark, "t", policy).files == 4
    assert ids(lake) == sorted(row.id for row in before)


def test_folder_that_is_made_anew_while_old_files_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a writer commits to a folder whose old files are just deleted is told, and each pass asks a person."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    old = lake.path("t") / "p=0"
    late = data_files(old)[0]
    content, delete = late.read_bytes(), HadoopFiles.delete_tree

    def made_anew(self: HadoopFiles, path: str) -> None:
        if "/trash-" in path and not old.exists():
            old.mkdir()
            (old / "part-late.parquet").write_bytes(content)
        delete(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(HadoopFiles, "delete_tree", made_anew)
        told = expire_run(lake.spark, "t", policy)
    assert "made" in told.refused["p=0"] and "anew" in told.refused["p=0"]
    assert (old / "part-late.parquet").exists()
    report = the_pass(lake, policy)
    assert report.exit_code == 74, report.to_dict()
    assert (old / "part-late.parquet").exists()
    assert ids(lake) == sorted(row.id for row in before)


@pytest.mark.parametrize("what", ["in use", "writer"])
def test_move_out_of_reach_is_taken_back(lake: Lake, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Old files whose folder comes into use, or in which a writer begins, while they are moved are renamed back."""
    policy, before = tagged(lake, PARTITIONED["using"])
    lake.changed("untagged:", "old_files: {grace: 1h}\nuntagged:")
    encrypt_table(lake.spark, "t", policy)
    policy = lake.changed("grace: 1h", "grace: 1s")
    old, rows = lake.path("t") / "p=0", sorted(row.id for row in before)
    time.sleep(1.1)

    def happens(folder: Path) -> None:
        if folder == old and what == "in use":
            lake.sql(f"ALTER TABLE t PARTITION (p = 0) SET LOCATION 'file:{old}'")
        elif folder == old:
            begin(folder)

    with monkeypatch.context() as patch:
        meanwhile(patch, "/old-", happens)
        report: Any = the_pass(lake, policy)
    assert len(data_files(old)) == 2, report.to_dict()
    assert not list(lake.root.rglob(".sparkcrypt/*/old-*/p=0/*.parquet"))
    assert len(list(lake.root.rglob(".sparkcrypt/*/old-*/p=1/*.parquet"))) == 2
    assert ids(lake) == rows


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
