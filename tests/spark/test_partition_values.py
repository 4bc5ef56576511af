"""Partitions by their values, of every type and NULL: --where chooses what Spark's WHERE would, and runs swap them."""

from __future__ import annotations

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.spark.tables.catalog import NULL_VALUE, Catalog, choose_partitions
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, rows_of

pytestmark = pytest.mark.spark

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
