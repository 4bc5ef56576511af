"""Runs over a part of a table: they do what was asked, beside whatever else is unfinished."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import Clock, after_swap, kill
from tests.spark.support import Lake, data_files, rows_of
from tests.spark.tables import PARTITIONED, tagged

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
    return Journal.find_unfinished(store, Catalog(lake.spark).table("t").uuid or "")


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


def test_narrow_call_settles_what_a_killed_run_had_swapped(lake: Lake, clock: Clock) -> None:
    """The unit that a killed run had swapped is written down, and nothing else of that run is done."""
    policy, before = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_swap)
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
