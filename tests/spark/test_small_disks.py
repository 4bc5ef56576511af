"""Runs on a disk that is full or read-only: the place is named, nothing is staged in vain, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.sessions import run_command
from tests.spark.support import Lake, make_policy

pytestmark = pytest.mark.spark
KB = 1000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a disk of its own with some options, or mounts it again with others."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        kind = ["-o", f"remount,{options}"] if folder.is_mount() else ["-t", "tmpfs", "-o", options, "tmpfs"]
        done = subprocess.run(["mount", *kind, str(folder)], check=False, capture_output=True)
        if done.returncode:
            pytest.skip("this user may not mount a small disk")
        return folder

    yield mount
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def fill_table(lake: Lake, folder: Path) -> str:
    """Create a tagged plaintext table on a disk: two partitions of a file with some 150 kB; return its policy."""
    made = make_policy(lake.root / "p")
    with lake.stranger() as stranger:
        stranger.sql(
            f"CREATE TABLE t (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p) LOCATION '{folder}/t'"
        )
        for p in (0, 1):
            stranger.sql(
                "INSERT INTO t SELECT /*+ COALESCE(1) */ CAST(id AS INT), concat_ws('', transform(sequence(1, 10), "
                f"n -> uuid())), {p} FROM range(400)"
            )
    set_tags(lake.spark, "t", {"email": ["pii"]}, made)
    return str(lake.root / "p" / "policy.yaml")


def test_full_disk_is_named_before_anything_is_staged(
    lake: Lake, disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit is refused with the place, what is needed and what is free; with more space the same command does it.

    Where the free space cannot be told before, either engine's error names the disk that got full.
    """
    folder = disk("size=4m")
    policy = fill_table(lake, folder)
    table = lake.name("t")
    with lake.stranger() as stranger:
        rows = sorted(map(tuple, stranger.table("t").collect()))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) // KB
    disk(f"size={size + 90}k")
    refused = run_command(lake, "encrypt", "--table", table, "--policy", policy)
    assert refused.exit_code == 71, refused.output
    (line,) = [line for line in refused.output.splitlines() if line.startswith("error:")]
    assert f"the disk of file:{folder} is full: its new files need" in line and "kB are free" in line
    assert "nothing was staged, and the unit is unchanged; free space" in line
    assert not list(folder.rglob("*.sparkcrypt/**/*.parquet"))
    left = run_command(lake, "backfill", "--table", table, "--policy", policy, "--json")
    assert left.exit_code == 74, left.output
    document = json.loads(left.stdout)
    assert [unit["error"] for unit in document["tables"][0]["quarantined"]] == ["StorageError"] * 2
    with monkeypatch.context() as patch:
        patch.setattr(HadoopFiles, "free_bytes", lambda *_: None)
        for engine in ("native", "spark"):
            failed = run_command(lake, "encrypt", "--table", table, "--policy", policy, "--engine", engine)
            assert failed.exit_code == 71, failed.output
            assert f"the disk of file:{folder} is full" in failed.output and "TASK_WRITE" not in failed.output
            assert not list(folder.rglob("*.sparkcrypt/**/*.parquet"))
    disk("size=8m")
    assert run_command(lake, "backfill", "--table", table, "--policy", policy).exit_code == 0
    assert sorted(map(tuple, lake.spark.table("t").collect())) == rows


def test_units_at_the_same_time_share_the_space(lake: Lake, disk: Callable[[str], Path]) -> None:
    """Where one of two units fits, one is done and the other refused, although both would fit alone."""
    folder = disk("size=4m")
    policy = fill_table(lake, folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) // KB
    disk(f"size={size + size * 3 // 4}k")
    done = run_command(lake, "backfill", "--table", lake.name("t"), "--policy", policy, "--json")
    assert done.exit_code == 74, done.output
    (report,) = json.loads(done.stdout)["tables"]
    assert (len(report["units"]), len(report["quarantined"])) == (1, 1)
    assert "nothing was staged" in report["quarantined"][0]["message"]


def test_read_only_disk_has_its_own_exit_code_and_message(lake: Lake, disk: Callable[[str], Path]) -> None:
    """71 and the reason, from runs and from doctor, instead of an error that nothing foresaw."""
    folder = disk("size=4m")
    policy = fill_table(lake, folder)
    (lake.root / "there.yaml").write_text(Path(policy).read_text().replace("state/", f"{folder}/state"))
    (lake.root / "keys").symlink_to(lake.root / "p" / "keys")
    disk("ro")
    done = run_command(lake, "encrypt", "--table", lake.name("t"), "--policy", policy)
    assert done.exit_code == 71, done.output
    examined = json.loads(run_command(lake, "doctor", "--table", lake.name("t"), "--policy", policy, "--json").stdout)
    (place,) = [check["detail"] for check in examined if check["check"].startswith("place of")]
    for said in (done.output, place):
        assert "read-only" in said.lower() and "nothing foresaw" not in said and str(folder) in said
    state = run_command(lake, "encrypt", "--table", lake.name("t"), "--policy", str(lake.root / "there.yaml"))
    assert state.exit_code in (71, 78), state.output
    assert "read-only" in state.output.lower()
