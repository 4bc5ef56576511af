"""What lies beside a table's data and is no run's: named, and never moved or deleted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.runs.past_runs import expire
from sparkcrypt.errors import VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.orphans import find_orphans
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.plan import TargetPlan, plan_target
from sparkcrypt.runs.rewrite import unit_rewriter
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.files.access_rights import copy_access
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.passes import the_pass, with_grace
from tests.spark.support import Lake, assert_plaintext, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark

KEPT = {"_checkpoint/offsets/0": "v1", ".backup/part-0.parquet": "an older copy", "_README": "keep"}
"""What people keep beside data: path -> content."""


def keep(folder: Path) -> None:
    """Put everything of ``KEPT`` into a folder."""
    for name, content in KEPT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def is_kept(folder: Path) -> bool:
    """Tell whether everything is there."""
    return {name: (folder / name).read_text() for name in KEPT if (folder / name).exists()} == KEPT


def take_away(folder: Path) -> None:
    """Move everything of ``KEPT`` out of a folder."""
    for name in {name.partition("/")[0] for name in KEPT}:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def the_plan(lake: Lake, policy: Policy) -> TargetPlan:
    """Return the plan of the table."""
    return plan_target(lake.spark, catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None), policy)


def encrypted(lake: Lake, create: str, **options: Any) -> tuple[Policy, list[Any], str]:
    """Make a table with a tag and encrypt it; return its policy, rows and the run's id."""
    policy, before = tagged(lake, create)
    return policy, before, encrypt_table(lake.spark, "t", policy, **options).run_id


@pytest.mark.parametrize("kind", ["managed", "partitioned"])
def test_unit_is_refused_before_anything_is_staged(lake: Lake, kind: str) -> None:
    """Each way to run names what is there and changes nothing; a run goes on once it was moved away."""
    policy, before = tagged(lake, {"managed": UNPARTITIONED, "partitioned": PARTITIONED}[kind]["using"])
    folder, unit = (lake.path("t"), lake.name("t")) if kind == "managed" else (lake.path("t") / "p=0", "p=0")
    keep(folder)
    found = the_plan(lake, policy)
    assert list(found.to_dict()["held"]) == [unit]
    for name in ("/_checkpoint", "/.backup", "/_README"):
        assert f"t{'' if kind == 'managed' else '/p=0'}{name}" in found.to_text().partition("held: ")[2]
    amount = {"files": len(data_files(folder)), "bytes": found.surveys[0].total_bytes}
    assert found.report.planned[0]["actions"] == {"quarantine": amount}
    with pytest.raises(VerificationError, match=r"/\.backup, .*/_README, .*/_checkpoint: lies beside data"):
        encrypt_table(lake.spark, "t", policy)
    report = the_pass(lake, policy).tables[0]
    assert [(quarantined["unit"], quarantined["error"]) for quarantined in report.quarantined] == [
        (unit, "VerificationError")
    ]
    assert is_kept(folder)
    assert_plaintext(folder)
    assert not list((lake.root / "db" / ".sparkcrypt").rglob("*.parquet")) or kind == "partitioned"
    take_away(folder)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert rows_of(lake.spark.table("t")) == before


def test_folder_of_files_is_refused_and_its_copy_is_not(lake: Lake) -> None:
    """A rename would take along what is there, also the staging of tables below; a copy leaves the source as it is."""
    folder = lake.root / "in"
    policy = lake.policy(tables=f"  files.x: {{location: '{folder}', tags: {{email: pii}}}}\n")
    with lake.stranger() as stranger:
        stranger.sql("SELECT 1 AS id, 'x' AS email").write.parquet(str(folder))
    keep(folder)
    (folder / ".sparkcrypt" / "other").mkdir(parents=True)
    with pytest.raises(VerificationError, match=r"\.sparkcrypt, .*name the tables' own folders"):
        encrypt_table(lake.spark, None, policy, path=str(folder), exclusive=True)
    report = encrypt_table(lake.spark, None, policy, path=str(folder), output=str(lake.root / "copy"))
    assert report.outcome == "done" and is_kept(folder)
    assert any("not in the copy: " in text and "_README and 1 more" in text for text in report.warnings)
    assert len(data_files(lake.root / "copy")) == len(data_files(folder))


def test_entry_that_comes_while_files_are_staged_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is looked at again right before the swap; then nothing is swapped, and staged files go."""
    policy, before = tagged(lake, UNPARTITIONED["using"])

    def come(*arguments: Any) -> None:
        keep(lake.path("t"))
        copy_access(*arguments)

    monkeypatch.setattr(unit_rewriter, "copy_access", come)
    with pytest.raises(VerificationError, match="_checkpoint: lies beside data"):
        encrypt_table(lake.spark, "t", policy)
    assert is_kept(lake.path("t"))
    assert_plaintext(lake.path("t"))
    assert data_files(lake.root / "db" / ".sparkcrypt") == []
    assert rows_of(lake.spark.table("t")) == before


def test_rollback_moves_no_checkpoint_that_began_since(lake: Lake) -> None:
    """What a stream keeps in the table's folder since the run would be renamed with the new files."""
    policy, before, run_id = encrypted(lake, UNPARTITIONED["using"])
    keep(lake.path("t"))
    with pytest.raises(VerificationError, match="_checkpoint: lies beside data"):
        rollback_run(lake.spark, "t", policy, run_id)
    assert is_kept(lake.path("t")) and verify_table(lake.spark, "t", policy).ok
    take_away(lake.path("t"))
    rollback_run(lake.spark, "t", policy, run_id)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_old_folder_with_more_in_it_stays(lake: Lake) -> None:
    """Neither a pass after the grace moves it nor expire deletes it; other units' old files go, and it once it may."""
    policy, before, _ = encrypted(lake, PARTITIONED["using"])
    old = lake.path("t") / "p=0"
    keep(old)
    report = the_pass(lake, with_grace(lake, policy, "1s")).tables[0]
    assert is_kept(old) and not (lake.path("t") / "p=1").exists()
    assert any("p=0" in warning and "_checkpoint: lies beside data" in warning for warning in report.warnings)
    dry = expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=True))
    assert list(dry.refused) == ["p=0"] and dry.files == 2
    done = expire_run(lake.spark, "t", policy)
    assert (done.files, list(done.refused)) == (2, ["p=0"])
    assert ".backup" in done.refused["p=0"] and is_kept(old) and len(data_files(old)) == 2
    with pytest.raises(VerificationError, match="lies beside data"):
        expire_run(lake.spark, "t", policy)
    take_away(old)
    assert expire_run(lake.spark, "t", policy).files == 2
    assert not old.exists()
    assert rows_of(lake.spark.table("t")) == before


def test_orphan_with_more_in_it_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old folder of a dropped table is named with the reason, and goes once it has data alone."""
    policy, _, _ = encrypted(lake, UNPARTITIONED["using"])
    lake.sql("DROP TABLE t")
    (old,) = (path for path in (lake.root / "db" / ".sparkcrypt" / "t").iterdir() if path.name.startswith("old-"))
    keep(old)
    monkeypatch.setattr("sparkcrypt.runs.old_folders.orphans.time.time", lambda: 4e9)
    (found,) = find_orphans(lake.spark, policy, databases=(lake.database,), delete=True)
    assert "_checkpoint: lies beside data" in str(found.why_kept) and not found.deleted and is_kept(old)
    take_away(old)
    (found,) = find_orphans(lake.spark, policy, databases=(lake.database,), delete=True)
    assert found.deleted and not old.exists()


@pytest.mark.parametrize("kind", ["managed", "partitioned"])
def test_files_of_writers_stay_behind(lake: Lake, kind: str) -> None:
    """Summaries are drift and plaintext that awaits expiry, also beside encrypted files; they go with the old files."""
    policy, before = tagged(lake, {"managed": UNPARTITIONED, "partitioned": PARTITIONED}[kind]["using"])
    folder = lake.path("t") if kind == "managed" else lake.path("t") / "p=0"
    metadata = pq.read_metadata(data_files(folder)[0])
    metadata.write_metadata_file(str(folder / "_metadata"))
    (folder / "_SUCCESS").touch()
    assert list(folder.glob(".*.crc"))
    found = the_plan(lake, policy)
    kinds = {difference.file.rpartition("/")[2]: difference.kind for difference in found.drift}
    assert kinds["_metadata"] == "summary_file" and "leave out 1" in found.to_text()
    assert found.to_dict()["files_matching"] == 0 and not found.to_dict()["held"]
    assert "summary_file" in {difference.kind for difference in verify_table(lake.spark, "t", policy).drift}
    report = encrypt_table(lake.spark, "t", policy)
    new = [Path(place.partition(":")[2]) for place in (unit["new_location"] for unit in report.units)]
    assert not [file for place in new for file in place.rglob("_*") if file.is_file()]
    waiting = the_pass(lake, policy).tables[0].awaiting_expiry
    assert waiting is not None and waiting["plaintext_files"] == 4 + 1
    file = max(lake.root.glob("policy-*")) / "policy.yaml"
    dry = CliRunner().invoke(
        expire, ["--table", lake.name("t"), "--policy", str(file), "--older-than", "0s", "--dry-run"]
    )
    assert "_metadata: statistics in plaintext, would be deleted too" in dry.output
    done = expire_run(lake.spark, "t", policy)
    assert (done.files, len(done.summaries)) == (4, 1)
    assert not list((lake.root / "db").rglob("_metadata"))
    assert rows_of(lake.spark.table("t")) == before and verify_table(lake.spark, "t", policy).ok
    metadata.write_metadata_file(str(new[0] / "_metadata"))
    assert [difference.kind for difference in the_plan(lake, policy).drift] == ["summary_file"]
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert verify_table(lake.spark, "t", policy).ok


def test_summary_above_partitions_is_named_until_it_is_gone(lake: Lake) -> None:
    """No run replaces what lies above the partitions, and it has statistics of all of them."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    above = lake.path("t") / "_metadata"
    pq.read_metadata(data_files(lake.path("t"))[0]).write_metadata_file(str(above))
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "done" and any("_metadata: a summary of footers" in text for text in report.warnings)
    found, checked = the_plan(lake, policy), verify_table(lake.spark, "t", policy)
    assert [difference.kind for difference in (*found.drift, *checked.drift)] == ["summary_file"] * 2
    assert (found.exit_code, checked.ok) == (2, False) and f"{above}: a summary of footers" in found.to_text()
    above.unlink()
    assert the_plan(lake, policy).exit_code == 0 and verify_table(lake.spark, "t", policy).ok
