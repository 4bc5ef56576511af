"""Errors after a swap took effect: the unit counts as swapped, is audited, and ``expire`` knows its old files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import AuditWriter
from sparkcrypt.ledger.journal.unit_status import has_ended
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.past_run import past_runs
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.swap import FolderSwap, LocationSwap
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.late_writers import audits
from tests.spark.support import Lake, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark
WAYS = [pytest.param(PARTITIONED["using"], LocationSwap, id="location"),
        pytest.param(UNPARTITIONED["using"], FolderSwap, id="folder")]  # fmt: skip


def pass_over(lake: Lake, policy: Policy) -> Any:
    """Run a pass that goes on after a unit that fails."""
    return backfill(
        lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, parallelism=1))
    )


def fails_after(function: Callable[..., Any], patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Make a function do its work, then fail, once."""
    left = [True]

    def failing(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if left:
            left.clear()
            raise VerificationError("the answer was lost")
        return result

    patch.setattr(owner, name, failing)


def runs_that_ended(lake: Lake, policy: Policy) -> list[bool]:
    """Tell of every run of the table whether it is finished."""
    with past_runs(lake.spark, "t", policy, "look", None) as runs:
        return [has_ended(runs.journal(run_id)) for run_id in runs.ids()]


@pytest.mark.parametrize(("create", "way"), WAYS)
@pytest.mark.parametrize("step", ["swap", "audit", "audit, by the JVM"])
def test_lost_answer_leaves_the_run_unfinished_until_it_is_written_down(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, create: str, way: type[Any], step: str
) -> None:
    """A swap whose answer, or whose audit entry, is lost ends the run; the next one records it and does the rest."""
    policy, before = tagged(lake, create)
    units = 2 if way is LocationSwap else 1
    if step == "swap":
        fails_after(way.swap, monkeypatch, way, "swap")
    else:
        append, left = AuditWriter.append, [True]

        def failing(*arguments: Any, **named: Any) -> Any:
            if left:
                left.clear()
                if "JVM" in step:  # as a file system does that fails while a record is written
                    lake.jvm.java.io.FileReader("/nowhere")
                raise VerificationError("the audit cannot be written")
            return append(*arguments, **named)

        monkeypatch.setattr(AuditWriter, "append", failing)
    report = pass_over(lake, policy)
    assert [failure.error for failure in report.failed] == ["RunConflictError"]
    assert "could not be written down" in report.failed[0].message
    assert audits(lake, policy) == []
    assert runs_that_ended(lake, policy) == [False]
    report = pass_over(lake, policy)
    assert (report.outcome, runs_that_ended(lake, policy)) == ("done", [True])
    assert audits(lake, policy) == ["encrypt"] * units
    assert expire_run(lake.spark, "t", policy).files == 4
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


@pytest.mark.parametrize(("create", "way"), WAYS)
def test_rows_on_both_sides_of_a_swap_are_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, create: str, way: type[Any]
) -> None:
    """Where writers reached the old files and the new ones, the swap stays and is recorded; no row is lost."""
    policy, before = tagged(lake, create)
    swap, left = way.swap, [True]

    def swapped(self: Any, new: NewFiles) -> str:
        file = new.unit.files[0].path
        files = HadoopFiles(lake.spark)
        content = files.read(file)
        old = str(swap(self, new))
        if left:
            left.clear()
            files.write_new(f"{old}/part-late.parquet", content)
            files.write_new(f"{self.final_location(new.unit, new.staged)}/part-later.parquet", content)
        return old

    monkeypatch.setattr(way, "swap", swapped)
    report = pass_over(lake, policy)
    lake.spark.catalog.refreshTable("t")
    rows = len(rows_of(lake.spark.table("t"))) - len(before)
    assert runs_that_ended(lake, policy) == [True]
    if way is LocationSwap:
        assert audits(lake, policy) == ["encrypt", "encrypt", "carry over"]
        assert (report.outcome, rows) == ("done", 2 * 1)
        expire_run(lake.spark, "t", policy)
    else:
        assert audits(lake, policy) == ["encrypt"]
        assert report.outcome == "incomplete"
        assert "part-late.parquet is in the old folder" in str(report.to_dict())
        with pytest.raises(VerificationError, match=r"part-late\.parquet is in the old folder"):
            expire_run(lake.spark, "t", policy)


def test_statistics_that_cannot_be_put_back_are_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit is done and recorded, and the report says what to run."""
    policy, before = tagged(lake, PARTITIONED["using"])
    lake.spark.sql("ANALYZE TABLE t COMPUTE STATISTICS")

    def failing(self: Catalog, *_: Any) -> None:
        try:
            self._catalog.alterTableStats(None, None)
        except JVM_ERRORS:
            raise
        raise AssertionError("the catalog took no statistics for no table")

    monkeypatch.setattr(Catalog, "restore_statistics", failing)
    report = pass_over(lake, policy)
    assert report.outcome == "done"
    assert "run ANALYZE TABLE" in str(report.to_dict())
    assert audits(lake, policy) == ["encrypt", "encrypt"]
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_staged_files_that_cannot_be_deleted_do_not_hide_why_a_unit_failed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error that matters is reported, the journal names what was left, and `expire` deletes it."""
    policy, before = tagged(lake, PARTITIONED["using"])
    give, delete, failed = HadoopFiles.set_access, HadoopFiles.delete_tree, [False]

    def failing(self: HadoopFiles, *_: Any) -> None:
        failed[0] = True
        raise VerificationError("the access cannot be copied")

    def stuck(self: HadoopFiles, path: str) -> None:
        if failed[0]:
            failed[0] = False
            raise VerificationError("the folder cannot be deleted")
        delete(self, path)

    monkeypatch.setattr(HadoopFiles, "set_access", failing)
    monkeypatch.setattr(HadoopFiles, "delete_tree", stuck)
    report = pass_over(lake, policy)
    assert [unit["message"] for unit in report.tables[0].quarantined] == ["the access cannot be copied"] * 2
    with past_runs(lake.spark, "t", policy, "look", None) as runs:
        errors = [
            record.fields["error"] for record in runs.journal(runs.ids()[0]).records if record.kind == "unit_failed"
        ]
    assert all("the access cannot be copied; what was staged is left at file:" in text for text in errors)
    monkeypatch.setattr(HadoopFiles, "set_access", give)
    monkeypatch.setattr(HadoopFiles, "delete_tree", delete)
    assert pass_over(lake, policy).outcome == "done"
    expire_run(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    in_use = {Path(path.removeprefix("file:")) for path in lake.spark.table("t").inputFiles()}
    everything = {path for path in (lake.root / "db").rglob("*.parquet") if path.is_file()}
    assert {path.resolve() for path in everything} == {path.resolve() for path in in_use}
