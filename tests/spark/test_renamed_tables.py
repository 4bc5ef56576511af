"""RENAME between a run and what comes after it: the metastore takes folders along, and old files are found there."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import audit_entries
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.killing import Clock, after_swap, kill
from tests.spark.late_writers import leave
from tests.spark.passes import with_grace
from tests.spark.support import SECRET, Lake, assert_plaintext, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


def in_clear(lake: Lake) -> list[str]:
    """Return the files below the database whose footer is plaintext."""
    files = (file for file in (lake.root / "db").rglob("*.parquet") if file.read_bytes()[-4:] == b"PAR1")
    return sorted(str(file.relative_to(lake.root / "db")) for file in files)


def rename(lake: Lake, old: str, new: str) -> None:
    """Rename a table."""
    lake.sql(f"ALTER TABLE {old} RENAME TO {new}")


def the_pass(lake: Lake, policy: Policy, table: str) -> PassReport:
    """Run a pass over one table."""
    return backfill(lake.spark, policy, tables=[table])


def rows(lake: Lake, table: str) -> list[Any]:
    """Return the rows of a table as they are now."""
    lake.spark.catalog.refreshTable(table)
    return rows_of(lake.spark.table(table))


def said(lake: Lake, policy: Policy, table: str) -> list[str]:
    """Return what the audit's entries of a table say was done."""
    uuid = Catalog(lake.spark).table(table).uuid or ""
    return [signed.entry["what"] for signed in audit_entries(open_state_store(policy.run_state), uuid)]


@pytest.mark.parametrize("kind", PARTITIONED)
def test_expire_finds_what_rename_took_along(lake: Lake, kind: str) -> None:
    """Old files of a managed partitioned table expire under its new name, and nothing in clear is left.

    The old name may be another table's by then, which has the tags: its rows stay its own, and its folder stays.
    """
    policy, before = tagged(lake, PARTITIONED[kind])
    encrypt_table(lake.spark, "t", policy)
    rename(lake, "t", "u")
    assert len(in_clear(lake)) == 4
    lake.sql(PARTITIONED[kind])
    lake.sql("INSERT INTO t VALUES (90, 'other', 'table', 0)")
    report = the_pass(lake, policy, "u")
    awaiting = report.tables[0].awaiting_expiry
    assert awaiting is not None and (report.outcome, awaiting["files"]) == ("nothing to do", 4)
    assert rows(lake, "u") == before
    assert [row.id for row in rows(lake, "t")] == [90]
    expired = expire_run(lake.spark, "u", policy)
    assert (expired.files, expired.carried) == (4, 0)
    assert all("/u/p=" in folder for folder in expired.folders)
    assert in_clear(lake) == []
    assert rows(lake, "u") == before
    assert [row.id for row in rows(lake, "t")] == [90]
    assert said(lake, policy, "u") == ["encrypt", "encrypt", "relocate", "relocate"]
    assert verify_table(lake.spark, "u", policy, manifest=True).ok


def test_rename_twice_and_back_with_a_late_writer(lake: Lake) -> None:
    """Each place is recorded, or none where the table has its first name again; what came late is carried over."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    leave(lake, lake.path("t") / "p=0", 77)
    rename(lake, "t", "u")
    assert the_pass(lake, policy, "u").outcome in ("done", "nothing to do")
    assert [row.id for row in rows(lake, "u")] == [*sorted(row.id for row in before), 77]
    rename(lake, "u", "w")
    assert the_pass(lake, policy, "w").outcome == "nothing to do"
    rename(lake, "w", "t")
    assert expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=True)).files == 5
    assert expire_run(lake.spark, "t", policy).files == 5
    assert in_clear(lake) == []
    assert [row.id for row in rows(lake, "t")] == [*sorted(row.id for row in before), 77]


@pytest.mark.parametrize("grace", ["1h", "1s"])
def test_rollback_after_rename(lake: Lake, grace: str) -> None:
    """Old files are in use again where the table is now, whether they were moved out of its folder before or not."""
    policy, before = tagged(lake, PARTITIONED["using"])
    first = encrypt_table(lake.spark, "t", policy)
    policy = with_grace(lake, policy, grace)
    the_pass(lake, policy, "t")
    rename(lake, "t", "u")
    the_pass(lake, policy, "u")
    rename(lake, "u", "w")
    assert rollback_run(lake.spark, "w", policy, first.run_id).units == ("p=0", "p=1")
    places = {partition.location for partition in Catalog(lake.spark).partitions(Catalog(lake.spark).table("w"))}
    assert places == {f"file:{lake.path('w')}/p={p}" for p in (0, 1)}
    assert_plaintext(lake.path("w"))
    assert rows(lake, "w") == before
    assert the_pass(lake, policy, "w").outcome == "done"
    assert expire_run(lake.spark, "w", policy).files == 8
    assert in_clear(lake) == []
    assert rows(lake, "w") == before


def test_old_files_come_back_after_rename(lake: Lake) -> None:
    """DROP PARTITION and INSERT under the new name bring old rows back: the pass leaves the unit as it is."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    rename(lake, "t", "u")
    lake.sql("ALTER TABLE u DROP PARTITION (p = 0)")
    lake.sql(f"INSERT INTO u VALUES (50, '{SECRET}-50', 'new', 0)")
    report = the_pass(lake, policy, "u")
    assert [problem["kind"] for problem in report.tables[0].problems] == ["old files are in use again"]
    assert expire_run(lake.spark, "u", policy).files == 2
    assert sorted(row.id for row in rows(lake, "u")) == [0, 1, 2, 3, 50]


@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]], ids=["partitioned", "unpartitioned"])
def test_rename_between_a_killed_run_and_its_next(lake: Lake, clock: Clock, create: str) -> None:
    """A unit that was swapped before anything said so is adopted under the new name, and its old files expire."""
    policy, before = tagged(lake, create)
    kill(lake, policy, clock, after_swap)
    lake.spark.catalog.refreshTable("t")
    rename(lake, "t", "u")
    assert encrypt_table(lake.spark, "u", policy).outcome == "done"
    assert rows(lake, "u") == before
    assert verify_table(lake.spark, "u", policy, manifest=True).ok
    assert expire_run(lake.spark, "u", policy).files == 4
    assert in_clear(lake) == []
    assert rows(lake, "u") == before


def test_table_without_partitions(lake: Lake) -> None:
    """Its new files moved along: they are looked for where they are, and the rollback finds both.

    Another table that has the first name by then keeps its files.
    """
    policy, before = tagged(lake, UNPARTITIONED["using"])
    first = encrypt_table(lake.spark, "t", policy)
    rename(lake, "t", "u")
    lake.sql(UNPARTITIONED["using"])
    lake.sql("INSERT INTO t VALUES (90, 'other', 'table')")
    aside = lake.root / "aside"
    gone = next(iter(lake.path("u").glob("*.parquet")))
    gone.rename(aside)
    with pytest.raises(VerificationError, match="may be the only copy"):
        expire_run(lake.spark, "u", policy)
    aside.rename(gone)
    rollback_run(lake.spark, "u", policy, first.run_id)
    assert_plaintext(lake.path("u"))
    assert rows(lake, "u") == before
    assert encrypt_table(lake.spark, "u", policy).outcome == "done"
    assert [row.id for row in rows(lake, "t")] == [90]
    lake.sql("DROP TABLE t")
    rename(lake, "u", "t")
    assert rows(lake, "t") == before
    expire_run(lake.spark, "t", policy)
    assert in_clear(lake) == []
    assert rows(lake, "t") == before


def test_rows_under_the_old_name_are_another_tables(lake: Lake) -> None:
    """Where somebody deleted what moved along, a folder with the first name is not taken for the old one."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    rename(lake, "t", "u")
    for old in lake.path("u").rglob("*.parquet"):
        old.unlink()
    lake.sql(PARTITIONED["using"])
    lake.sql("INSERT INTO t VALUES (90, 'other', 'table', 0)")
    the_pass(lake, policy, "u")
    assert rows(lake, "u") == before
    assert [row.id for row in rows(lake, "t")] == [90]
