"""Partitions wherever they lie, of any values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog, choose_partitions
from sparkcrypt.spark.tables.table import NULL_VALUE
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, data_files, rows_of
from tests.spark.tables import PARTITIONED

pytestmark = pytest.mark.spark

KINDS = ("using", "hive", "external", "external hive")


def base(lake: Lake, kind: str) -> Path:
    """Return the table's own folder."""
    return lake.root / "external" if kind.startswith("external") else lake.path("t")


def scattered(lake: Lake, kind: str, places: dict[int, str]) -> Policy:
    """Make a plaintext table of one row a partition, some of them at places of their own below ``elsewhere``; tag it.

    Args:
        lake: where.
        kind: one of `KINDS`.
        places: partition -> folder below ``elsewhere``; empty: its ordinary folder.
    """
    create = PARTITIONED[kind.split()[-1].replace("external", "using")]
    if kind.startswith("external"):
        words = "CREATE EXTERNAL TABLE" if kind.endswith("hive") else "CREATE TABLE"
        create = create.replace("CREATE TABLE", words) + f" LOCATION '{base(lake, kind).as_uri()}'"
    with lake.stranger() as stranger:
        stranger.sql(create)
        for p, place in places.items():
            if place:
                at = lake.root / "elsewhere" / place
                stranger.sql(f"ALTER TABLE t ADD PARTITION (p = {p}) LOCATION 'file:{at}'")
            stranger.sql(f"INSERT INTO t PARTITION (p = {p}) VALUES ({p}, '{SECRET}-{p}', 'note {p}')")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy


def locations(lake: Lake) -> dict[str, Path]:
    """Return partition -> its folder, as the metastore has it."""
    catalog = Catalog(lake.spark)
    found = catalog.partitions(catalog.table("t"))
    return {partition.folder: Path(partition.location.removeprefix("file:")) for partition in found}


def rows(lake: Lake) -> list[Any]:
    """Return the table's rows as they are now."""
    lake.spark.catalog.refreshTable("t")
    return rows_of(lake.spark.table("t"))


ORDINARY_AND_ELSEWHERE = {0: "", 1: "x", 2: "y/p=2"}


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_are_done_wherever_they_lie(lake: Lake, kind: str) -> None:
    """All are swapped, writers go on in each, and expire deletes the old folders: those, and nothing beside them."""
    policy = scattered(lake, kind, ORDINARY_AND_ELSEWHERE)
    before, old = rows(lake), locations(lake)
    elsewhere = lake.root / "elsewhere"
    assert list(old.values()) == [base(lake, kind) / "p=0", elsewhere / "x", elsewhere / "y" / "p=2"]
    (elsewhere / "y" / "neighbour.txt").write_text("kept")
    report = backfill(lake.spark, policy, tables=["t"]).tables[0]
    assert (report.outcome, report.files_rewritten) == ("done", 3)
    new, staging = locations(lake), base(lake, kind).parent / ".sparkcrypt" / base(lake, kind).name
    assert all(place.is_relative_to(staging) and place.name == name for name, place in new.items())
    assert rows(lake) == before
    for p in range(3):
        lake.sql(f"INSERT INTO t PARTITION (p = {p}) VALUES ({p + 10}, '{SECRET}-{p + 10}', 'new')")
    after = rows(lake)
    assert len(after) == 6 and [row for row in after if row.id < 10] == before
    for place in new.values():
        assert len(assert_encrypted(place, policy, {"email": "pii"}, visible=["new"])) == 2
    for place in old.values():
        assert_plaintext(place)
        assert len(data_files(place)) == 1
    found = verify_table(lake.spark, "t", policy, manifest=True)
    assert found.ok and found.manifest is not None
    assert (found.notes, found.manifest.files, len(found.manifest.unlisted)) == ((), 3, 3)
    assert expire_run(lake.spark, "t", policy).files == 3
    assert [place for place in old.values() if place.exists()] == []
    assert {file.parent for file in data_files(lake.root)} == set(new.values())
    assert (elsewhere / "y" / "neighbour.txt").read_text() == "kept"
    assert (rows(lake), locations(lake)) == (after, new)
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


@pytest.mark.parametrize("move_old", [False, True])
@pytest.mark.parametrize("kind", ["using", "external hive"])
def test_rollback_brings_each_partition_back_to_its_place(lake: Lake, kind: str, move_old: bool) -> None:
    """Every partition points to its own old folder again, also where old files had been moved; expire keeps those."""
    policy = scattered(lake, kind, ORDINARY_AND_ELSEWHERE)
    before, old = rows(lake), locations(lake)
    options = PassOptions(run=RunOptions(keep_going=True, move_old=move_old))
    run_id = backfill(lake.spark, policy, tables=["t"], options=options).tables[0].run_id
    assert [place.exists() for place in old.values()] == [not move_old] * 3
    assert rows(lake) == before
    rollback_run(lake.spark, "t", policy, run_id)
    assert (rows(lake), locations(lake)) == (before, old)
    for place in old.values():
        assert_plaintext(place)
    expire_run(lake.spark, "t", policy)
    assert (rows(lake), locations(lake)) == (before, old)
    assert not list((base(lake, kind).parent / ".sparkcrypt").rglob("*.parquet"))
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    assert rows(lake) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


@pytest.mark.parametrize(
    "places",
    [
        {0: "", 1: "x", 2: "x"},
        {0: "", 1: "x", 2: "x/inner"},
        {0: "", 1: "x/p=1", 2: "x"},
        {0: "", 1: "x", 2: "x/inner", 3: "x-old"},
    ],
)
def test_partitions_in_one_folder_are_refused(lake: Lake, places: dict[int, str]) -> None:
    """Equal and nested folders of two partitions are told with what to do, and nothing has changed."""
    policy = scattered(lake, "using", places)
    before, at = rows(lake), locations(lake)
    bytes_before = {file: file.read_bytes() for file in data_files(lake.root)}
    report = backfill(lake.spark, policy, tables=["t"])
    assert (report.outcome, [failure.error for failure in report.failed]) == ("incomplete", ["PlanError"])
    message = report.failed[0].message
    assert "share the folder" in message and f"{lake.root / 'elsewhere' / 'x'};" in message
    assert "SET LOCATION" in message and "'p=1'" in message and "'p=2'" in message
    with pytest.raises(PlanError, match="share the folder"):
        encrypt_table(lake.spark, "t", policy)
    assert (rows(lake), locations(lake)) == (before, at)
    assert {file: file.read_bytes() for file in data_files(lake.root)} == bytes_before


def test_partition_that_was_added_inside_an_old_folder_is_not_expired(lake: Lake) -> None:
    """Its files look like a stale writer's: they are neither carried over nor deleted."""
    policy = scattered(lake, "using", {0: "", 1: "x"})
    encrypt_table(lake.spark, "t", policy)
    lake.sql(f"ALTER TABLE t ADD PARTITION (p = 3) LOCATION 'file:{lake.root}/elsewhere/x/three'")
    lake.sql(f"INSERT INTO t PARTITION (p = 3) VALUES (3, '{SECRET}-3', 'new')")
    before = rows(lake)
    for dry_run in (True, False):
        with pytest.raises(VerificationError, match=r"elsewhere/x holds old files, and p=\d points to .*/x/three"):
            expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=dry_run))
    assert rows(lake) == before


@pytest.mark.parametrize("purge", ["true", "false"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_dropped_external_table_leaves_its_files(lake: Lake, partitioned: bool, purge: str) -> None:
    """A run keeps the table's kind and properties; DROP TABLE deletes neither old nor new files, as it did before."""
    with lake.stranger() as stranger:
        by = ", p INT) USING parquet PARTITIONED BY (p)" if partitioned else ") USING parquet"
        place = (lake.root / "external").as_uri()
        for name, at in (("t", place), ("never_run", f"{place}-2")):
            properties = f"TBLPROPERTIES ('external.table.purge' = '{purge}')"
            stranger.sql(f"CREATE TABLE {name} (id INT, email STRING{by} LOCATION '{at}' {properties}")
            stranger.sql(f"INSERT INTO {name} VALUES (1, '{SECRET}-1'" + (", 0)" if partitioned else ")"))
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    before = rows(lake)
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    assert rows(lake) == before
    table = Catalog(lake.spark).table("t")
    assert (table.kind, table.properties["external.table.purge"]) == ("EXTERNAL", purge)
    new = lake.root / ".sparkcrypt" / "external"
    for name in ("t", "never_run"):
        lake.sql(f"DROP TABLE {name}")
    assert len(data_files(lake.root / "external-2")) == 1  # what DROP does to a table that no run has seen
    assert_plaintext(lake.root / "external")
    assert_encrypted(new, policy, {"email": "pii"}, visible=())
    assert len(data_files(lake.root / "external")) == len(data_files(new)) == 1


COLUMNS = "s STRING, i INT, d DATE, ts TIMESTAMP, n DECIMAL(10,2), b BOOLEAN, c CHAR(4)"
ROWS = (
    "'x', 0, DATE '2024-02-29', TIMESTAMP '2024-02-29 23:59:58.5', 1.0, true, 'x'",
    "'a=b', -1, DATE '1500-01-01', TIMESTAMP '2024-03-01 00:00:00', -0.25, false, 'xy'",
    "'a/b%2Fc', 7, NULL, NULL, 1.5, true, NULL",
    "'1.0', NULL, DATE '2024-02-29', NULL, NULL, NULL, 'x'",
    "'o''clock', 7, NULL, TIMESTAMP '2024-03-01 00:00:00', 2, NULL, 'xy'",
    "'NULL', 1, NULL, NULL, 3, true, 'x'",
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL",
)
FIRST = {"s": "'x'", "i": "0", "d": "'2024-02-29'"}
PREDICATES = (
    "{k} IS NULL",
    "{k} IS NOT NULL",
    "{k} <=> NULL",
    "{k} <> {first}",
    "NOT ({k} = {first})",
    "{k} = {first} OR {k} IS NULL",
    "{k} NOT IN ({first})",
    "{k} NOT IN ({first}, NULL)",
    "coalesce({k} > {first}, true)",
    "{k} = NULL",
)
OTHERS = """
s LIKE 'a%'; S = 'a=b'; s = 'a/b%2Fc'; s = '1.0'; s = 'NULL'; i % 2 = 0; d >= '2024-01-01'; year(d) < 2000; ts IS NULL;
hour(ts) = 0; ts < '2024-03-01'; n = 1; n <> 1.5; b; NOT b; b IS NULL; c = 'x'; c <> 'x'; c IS NULL AND s IS NOT NULL;
s IS NULL OR d IS NULL AND b; i IN (SELECT max(id) FROM range(8)); current_date() > d
"""


def make(lake: Lake, kind: str) -> None:
    """Make a plaintext table of a row for each of these, and tag a column."""
    with lake.stranger() as stranger:
        if kind == "hive":
            stranger.sql(f"CREATE TABLE t (id INT, email STRING) PARTITIONED BY ({COLUMNS}) STORED AS PARQUET")
        else:
            names = ", ".join(column.split()[0] for column in COLUMNS.split(", "))
            stranger.sql(f"CREATE TABLE t (id INT, email STRING, {COLUMNS}) USING parquet PARTITIONED BY ({names})")
        rows = (f"({number}, '{SECRET}', {row})" for number, row in enumerate(ROWS))
        stranger.sql(f"INSERT INTO t VALUES {', '.join(rows)}")
    set_tags(lake.spark, "t", {"email": ["pii"]}, None)


@pytest.mark.parametrize("kind", ["using", "hive"])
def test_partitions_of_each_value(lake: Lake, kind: str) -> None:
    """A predicate chooses what it is true of, by three-valued logic; what it chose is encrypted and rolled back."""
    policy = lake.policy()
    make(lake, kind)
    predicates = [text.format(k=k, first=first) for k, first in FIRST.items() for text in PREDICATES]
    predicates += OTHERS.split(";")
    table = Catalog(lake.spark).table("t")
    assert len(choose_partitions(lake.spark, table, None)) == len(ROWS)
    names = ", ".join(f"CAST({name} AS STRING)" for name in table.partition_columns)
    for where in predicates:
        rows = lake.sql(f"SELECT DISTINCT {names} FROM t WHERE {where}").collect()
        wanted = {tuple(NULL_VALUE if value is None else value.rstrip() for value in row) for row in rows}
        chosen = choose_partitions(lake.spark, table, where)
        found = {tuple(value.rstrip() for _, value in partition.values) for partition in chosen}
        assert found == wanted, where

    before = rows_of(lake.spark.table("t"))
    rest = encrypt_table(lake.spark, "t", policy, where="s IS NOT NULL")
    assert (rest.outcome, len(rest.units)) == ("done", len(ROWS) - 1)
    assert verify_table(lake.spark, "t", policy, where="NOT (s IS NULL)").ok
    assert not verify_table(lake.spark, "t", policy, where="d <=> NULL").ok
    last = encrypt_table(lake.spark, "t", policy, where="s IS NULL")
    assert (last.outcome, len(last.units)) == ("done", 1)
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    for report in (last, rest):
        assert len(rollback_run(lake.spark, "t", policy, report.run_id).units) == len(report.units)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert not verify_table(lake.spark, "t", policy).ok


def test_unit_of_a_partition_is_chosen_alone(lake: Lake) -> None:
    """The predicate of a partition is true of it and of no other, whatever its values."""
    make(lake, "using")
    table = Catalog(lake.spark).table("t")
    for partition in choose_partitions(lake.spark, table, None):
        assert choose_partitions(lake.spark, table, partition.predicate) == (partition,)
