"""What comes to a folder, or into use, after it was looked at and before it is deleted or moved, is not lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.errors import StorageError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.orphans import Orphan, find_orphans
from sparkcrypt.spark.files.hadoop import HadoopFiles
from tests.spark.late_writers import ids
from tests.spark.passes import the_pass
from tests.spark.support import Lake, data_files
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
