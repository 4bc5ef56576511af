"""Rollback: a run's old files are in use again, nothing written since is lost, and a killed rollback goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders import rollback as rollback_module
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.rewrite.context import append_audit
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, assert_plaintext, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

CREATE = {"partitioned": PARTITIONED["using"], "hive": PARTITIONED["hive"], "managed": UNPARTITIONED["using"]}


def encrypted(lake: Lake, create: str, **options: Any) -> tuple[Policy, list[Any], str]:
    """Make a table, encrypt it; return its policy, rows and the run's id."""
    fill(lake, create)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    before = rows_of(lake.spark.table("t"))
    return policy, before, encrypt_table(lake.spark, "t", policy, **options).run_id


def places(lake: Lake) -> set[str]:
    """Return the folders to which the table points."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    found = (
        [partition.location for partition in catalog.partitions(table)] if table.partition_columns else [table.location]
    )
    return {place.removeprefix("file:") for place in found}


@pytest.mark.parametrize("kind", CREATE)
def test_old_files_are_in_use_again(lake: Lake, kind: str) -> None:
    """Locations, files and rows are as before the run; a second run encrypts again; expire clears all away."""
    policy, before, run_id = encrypted(lake, CREATE[kind])
    dry = rollback_run(lake.spark, "t", policy, run_id, dry_run=True)
    assert dry.files == 4 if "PARTITIONED" in CREATE[kind] else 2
    assert verify_table(lake.spark, "t", policy).ok
    done = rollback_run(lake.spark, "t", policy, run_id)
    assert done.units == dry.units
    assert places(lake) <= {str(lake.path("t")), str(lake.path("t") / "p=0"), str(lake.path("t") / "p=1")}
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before
    store = open_state_store(policy.run_state)
    entries = [signed.entry["what"] for signed in list_entries(store, Catalog(lake.spark).table("t").uuid or "", None)]
    assert entries == ["encrypt"] * len(done.units) + ["roll back"] * len(done.units)
    again = encrypt_table(lake.spark, "t", policy)
    assert (again.outcome, rows_of(lake.spark.table("t"))) == ("done", before)
    expire_run(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok
    used = {str(file) for place in places(lake) for file in Path(place).rglob("*.parquet")}
    assert {str(file) for file in (lake.root / "db").rglob("*.parquet")} == used


def test_rollback_after_move_old(lake: Lake) -> None:
    """Old files that were moved out of the table's folder come back to it."""
    policy, before, run_id = encrypted(lake, CREATE["partitioned"], move_old=True)
    rollback_run(lake.spark, "t", policy, run_id)
    assert places(lake) == {str(lake.path("t") / "p=0"), str(lake.path("t") / "p=1")}
    assert rows_of(lake.spark.table("t")) == before


@pytest.mark.parametrize("kind", CREATE)
def test_rows_written_since_are_not_lost(lake: Lake, kind: str) -> None:
    """A row inserted after the run: the rollback is refused, names the file, and nothing changes."""
    policy, before, run_id = encrypted(lake, CREATE[kind])
    values = f"9, '{SECRET}-9', 'x'" + (", 1" if "PARTITIONED" in CREATE[kind] else "")
    lake.sql(f"INSERT INTO t VALUES ({values})")
    at = places(lake)
    with pytest.raises(VerificationError, match="was written after the run, and a rollback would lose its rows"):
        rollback_run(lake.spark, "t", policy, run_id)
    assert places(lake) == at
    assert len(rows_of(lake.spark.table("t"))) == len(before) + 1


def test_expired_files_cannot_come_back(lake: Lake) -> None:
    """After expire, or where one old file is gone, a rollback is refused before anything changes."""
    policy, before, run_id = encrypted(lake, CREATE["partitioned"])
    next((lake.path("t") / "p=1").glob("part-*")).unlink()
    with pytest.raises(VerificationError, match=r"p=1: the old file .* is not at .* any more"):
        rollback_run(lake.spark, "t", policy, run_id)
    assert all(".sparkcrypt" in place for place in places(lake))
    assert rows_of(lake.spark.table("t")) == before
    with pytest.raises(ConfigError, match=r"run nonsense is not known; allowed: 2"):
        rollback_run(lake.spark, "t", policy, "nonsense")


def test_later_run_is_rolled_back_first(lake: Lake) -> None:
    """A run whose files a later one has replaced is not rolled back over it."""
    policy, before, first = encrypted(lake, CREATE["partitioned"])
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    second = encrypt_table(lake.spark, "t", policy).run_id
    with pytest.raises(VerificationError, match=r"its location is now .*, neither .* nor what this run staged"):
        rollback_run(lake.spark, "t", policy, first)
    rollback_run(lake.spark, "t", policy, second)
    rollback_run(lake.spark, "t", policy, first)
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before


@pytest.mark.parametrize("kind", CREATE)
@pytest.mark.parametrize("when", ["before the swap", "after the swap", "after the journal"])
def test_killed_rollback_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str, when: str) -> None:
    """A rollback that ends anywhere in its first unit is finished by the same command."""
    policy, before, run_id = encrypted(lake, CREATE[kind])
    whole = rollback_module.roll_back_unit

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def once(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "before the swap":
            patch.setattr(rollback_module, "_is_back_already", killed)
        elif when == "after the swap":
            patch.setattr(rollback_module, "append_audit", killed)
        else:
            patch.setattr(rollback_module, "roll_back_unit", once)
        with pytest.raises(KeyboardInterrupt):
            rollback_run(lake.spark, "t", policy, run_id)
    assert vars(rollback_module)["append_audit"] is append_audit
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    rollback_run(lake.spark, "t", policy, run_id)
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before
