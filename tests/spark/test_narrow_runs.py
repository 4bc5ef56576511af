"""Runs over a part of a table, and units that are done again."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import ConfigError, RunConflictError, SparkcryptError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.swap import FolderSwap
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.journals import find_unfinished
from tests.spark.killing import Clock, after_record, after_swap, kill
from tests.spark.late_writers import At
from tests.spark.support import Lake, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark


def wide(lake: Lake) -> tuple[Policy, list[Any]]:
    """Make a table of four partitions with a tag; return its policy and rows."""
    with lake.stranger() as stranger:
        stranger.sql(PARTITIONED["using"])
        stranger.sql("INSERT INTO t VALUES (0, 'a', 'n', 0), (1, 'b', 'n', 1), (2, 'c', 'n', 2), (3, 'd', 'n', 3)")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy, rows_of(lake.spark.table("t"))


def unfinished(lake: Lake, policy: Policy) -> str | None:
    """Return the run of the table that is unfinished."""
    store = open_state_store(policy.run_state)
    return find_unfinished(store, Catalog(lake.spark).table("t").uuid or "")


def encrypted(lake: Lake) -> int:
    """Return how many files runs have put into use."""
    return len(data_files(lake.root / "db" / ".sparkcrypt"))


def test_narrow_call_leaves_a_budgeted_run_waiting(lake: Lake) -> None:
    """A pass stopped at its budget; a call for one partition does that one, and says what else is unfinished."""
    policy, before = wide(lake)
    options = PassOptions(run=RunOptions(keep_going=True, parallelism=1), max_bytes=1)
    first = backfill(lake.spark, policy, tables=["t"], options=options)
    assert (first.outcome, encrypted(lake)) == ("stopped at budget", 1)
    waiting = unfinished(lake, policy)
    last = encrypt_table(lake.spark, "t", policy, where="p = 3")
    assert (last.outcome, [unit["unit"] for unit in last.units], encrypted(lake)) == ("done", ["p=3"], 2)
    assert any(f"run {waiting} over all partitions is unfinished" in warning for warning in last.warnings)
    assert unfinished(lake, policy) == waiting
    expire_run(lake.spark, "t", policy)
    assert rows_of(lake.spark.table("t")) == before
    rest = backfill(lake.spark, policy, tables=["t"])
    assert (rest.outcome, rest.tables[0].run_id, encrypted(lake)) == ("done", waiting, 4)
    assert unfinished(lake, policy) is None
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


@pytest.mark.usefixtures("unit_a_batch")
def test_narrow_call_settles_what_a_killed_run_had_swapped(lake: Lake, clock: Clock) -> None:
    """The unit that a killed run had swapped is written down, and nothing else of that run is done."""
    policy, before = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_swap, parallelism=1)
    waiting = unfinished(lake, policy)
    report = encrypt_table(lake.spark, "t", policy, where="p = 0")
    assert report.outcome == "nothing to do"
    assert unfinished(lake, policy) == waiting
    assert encrypted(lake) == 2
    expire_run(lake.spark, "t", policy)
    assert rows_of(lake.spark.table("t")) == before
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert unfinished(lake, policy) is None
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_predicate_that_chooses_nothing_is_told(lake: Lake) -> None:
    """A misspelt value is a warning."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    report = encrypt_table(lake.spark, "t", policy, where="p = 77")
    assert report.outcome == "nothing to do"
    assert any("--where 'p = 77' chooses no partition" in warning for warning in report.warnings)


def test_run_that_is_begun_anew_does_what_was_asked(lake: Lake) -> None:
    """With --resume never the unfinished run is closed, and neither its partitions nor its engine go on."""
    policy, before = wide(lake)
    options = PassOptions(run=RunOptions(keep_going=True, where="p < 2"), max_bytes=1)
    first = backfill(lake.spark, policy, tables=["t"], options=options)
    assert (first.outcome, encrypted(lake)) == ("stopped at budget", 1)
    report = encrypt_table(lake.spark, "t", policy, where="p = 3", engine="spark", resume="never")
    assert (report.outcome, report.engine, [unit["unit"] for unit in report.units]) == ("done", "spark", ["p=3"])
    assert unfinished(lake, policy) is None
    assert rows_of(lake.spark.table("t")) == before


BUDGET = PassOptions(run=RunOptions(keep_going=True, parallelism=1), max_bytes=1)


def test_unit_that_drifts_again_in_a_paused_run_is_left_to_another_run(lake: Lake) -> None:
    """Its first old folder stays known: it expires, and each run can be rolled back by itself."""
    policy = lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n")
    make_table(lake, "t", partitions=3)
    before = rows_of(lake.spark.table("t"))
    paused = backfill(lake.spark, policy, tables=["t"], options=BUDGET).tables[0]
    assert (paused.outcome, [unit["unit"] for unit in paused.units]) == ("stopped at budget", ["p=0"])
    set_tags(lake.spark, "t", {"email": ["finance"]}, policy)
    report = backfill(lake.spark, policy, tables=["t"]).tables[0]
    assert (report.outcome, report.run_id != paused.run_id) == ("done", True)
    assert [unit["unit"] for unit in report.units] == ["p=0"]
    assert any("had swapped some units before they drifted again" in warning for warning in report.warnings)
    assert verify_table(lake.spark, "t", policy).ok
    rollback_run(lake.spark, "t", policy, report.run_id)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    expire_run(lake.spark, "t", policy)
    assert not data_files(lake.path("t"))
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_renamed_table_that_was_killed_and_tagged_again(lake: Lake, clock: Clock) -> None:
    """A folder is renamed once in a run."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    kill(lake, policy, clock, after_record("unit_swapped"))
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "done"
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok
    assert expire_run(lake.spark, "t", policy).files == 8
    assert len(data_files(lake.root / "db")) == 4


def test_driver_of_a_renamed_table_that_wakes_up_early_undoes_its_rename(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    """While another driver verifies what it staged: that one swaps, and every file is in the audit."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    swap, slept = FolderSwap.swap, list[str]()

    def paused(self: FolderSwap, new: NewFiles) -> str:
        if slept:
            return swap(self, new)
        slept.append(new.staged)
        clock.now += 1_000
        other = At(lake.name("t"), "verifying", lambda: slept.append(swap(self, new)))
        monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0, 0.0))
        try:
            encrypt_table(lake.spark, "t", policy, progress=other)
        except SparkcryptError as error:  # it finds its source renamed away
            slept.append(str(error))
        return slept[1]

    monkeypatch.setattr(FolderSwap, "swap", paused)
    with pytest.raises(RunConflictError, match="no longer holds the lock"):
        encrypt_table(lake.spark, "t", policy)
    monkeypatch.undo()
    assert len(slept) >= 2
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome in ("done", "nothing to do")
    table = Catalog(lake.spark).table("t")
    store = open_state_directory(lake.spark, policy.run_state, outside="/nowhere")
    assert [signed.entry["what"] for signed in list_entries(store, table.uuid or "", None)] == ["encrypt"]
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    expire_run(lake.spark, "t", policy)
    assert len(data_files(lake.root / "db")) == 4


def test_folder_is_not_renamed_where_that_copies_each_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store readers would see a part of the table; it is refused before anything is written."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda *_: False)
    with pytest.raises(ConfigError, match="which this file system does file by file"):
        encrypt_table(lake.spark, "t", policy)
    with pytest.raises(ConfigError, match="use --output instead"):
        encrypt_table(lake.spark, None, policy, path=str(lake.path("t")), exclusive=True)
    assert rows_of(lake.spark.table("t")) == before
    assert not (lake.root / "db" / ".sparkcrypt").exists()


def test_old_files_expire_without_a_rename_where_that_copies_each_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was listed is deleted."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda *_: False)
    monkeypatch.setattr(HadoopFiles, "rename", lambda *_: pytest.fail("a rename copies every byte"))
    assert expire_run(lake.spark, "t", policy).files == 4
    assert not data_files(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before
