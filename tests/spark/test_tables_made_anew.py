"""A table that is dropped and made anew under its name: its files are its own, and are read at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, data_files, footers, refusal, rows_of

pytestmark = pytest.mark.spark
ROW = f"1 AS id, '{SECRET}' AS email, '{PLAIN}' AS note"
NEW = f"2 AS id, '{SECRET}' AS email, '{PLAIN}' AS note"


def save_as_table(lake: Lake, table: str) -> None:
    """Overwrite by the writer of a frame."""
    lake.sql(f"SELECT {NEW}").write.mode("overwrite").format("parquet").saveAsTable(table)


def drop_and_select(lake: Lake, table: str) -> None:
    """DROP, and CREATE TABLE AS SELECT."""
    lake.sql(f"DROP TABLE {table}")
    lake.sql(f"CREATE TABLE {table} USING parquet AS SELECT {NEW}")


def drop_and_insert(lake: Lake, table: str) -> None:
    """DROP, CREATE TABLE and INSERT."""
    lake.sql(f"DROP TABLE {table}")
    lake.sql(f"CREATE TABLE {table} (id INT, email STRING, note STRING) USING parquet")
    lake.sql(f"INSERT INTO {table} SELECT {NEW}")


def drop_and_select_for_hive(lake: Lake, table: str) -> None:
    """DROP, and CREATE TABLE AS SELECT of a table of Hive."""
    lake.sql(f"DROP TABLE {table}")
    lake.sql(f"CREATE TABLE {table} STORED AS PARQUET AS SELECT {NEW}")


def drop_and_write_to(lake: Lake, table: str) -> None:
    """DROP, and the second writer of frames."""
    lake.sql(f"DROP TABLE {table}")
    lake.sql(f"SELECT {NEW}").writeTo(table).using("parquet").create()


WAYS = [save_as_table, drop_and_select, drop_and_insert, drop_and_select_for_hive, drop_and_write_to]


@pytest.mark.parametrize("required", [False, True], ids=["", "required"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_read_at_once(lake: Lake, way: Callable[[Lake, str], None], required: bool) -> None:
    """The new table has an identity of its own with its first file, and none of the earlier one's files is believed."""
    rule = f"  {lake.database}.t:\n    require_encryption: {str(required).lower()}\n    tags: {{email: pii}}\n"
    policy = lake.policy(tables=rule)
    first = made(lake, policy)
    (old,) = data_files(lake.path("t"))
    kept = shutil.copy(old, lake.root / old.name)
    way(lake, "t")
    uuid = Catalog(lake.spark).table("t").uuid
    assert uuid not in (None, first)
    assert [(one.aad_prefix or b"").split(b"/")[0].decode() for one in footers(lake.path("t"), policy)] == [uuid]
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    assert rows_of(lake.spark.table("t")) == [(2, SECRET, PLAIN)]
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql("REFRESH TABLE t")
    assert (rows_of(lake.spark.table("t")), Catalog(lake.spark).table("t").uuid) == ([(2, SECRET, PLAIN)], uuid)
    shutil.copy(kept, old)
    lake.sql("REFRESH TABLE t")
    assert "belongs to table" in refusal(lake.sql("SELECT email FROM t").collect)


def test_overwrite_that_fails(lake: Lake) -> None:
    """What is written by path after an overwrite that failed is the table's that was there."""
    policy = lake.policy()
    first = made(lake, policy)
    failing = lake.sql(f"SELECT {NEW}").selectExpr("raise_error('no') AS id", "email", "note")
    refusal(lambda: failing.write.mode("overwrite").format("parquet").saveAsTable("t"))
    if not lake.spark.catalog.tableExists("t"):
        return  # this version of Spark drops it first
    lake.sql(f"SELECT {NEW}").write.mode("append").parquet(str(lake.path("t")))
    prefixes = {(one.aad_prefix or b"").split(b"/")[0].decode() for one in footers(lake.path("t"), policy)}
    assert prefixes == {first}


def test_tags_of_the_earlier_table_count_while_it_is_there(lake: Lake) -> None:
    """An overwrite with rows without tags is encrypted where the table that it replaces is there when it is planned."""
    policy = lake.policy()
    first = made(lake, policy)
    save_as_table(lake, "t")
    uuid = Catalog(lake.spark).table("t").uuid
    prefixes = {one.aad_prefix and one.aad_prefix.split(b"/")[0].decode() for one in footers(lake.path("t"), policy)}
    assert first not in prefixes
    assert prefixes in ({uuid}, {None})
    assert rows_of(lake.spark.table("t")) == [(2, SECRET, PLAIN)]


def test_external_files_keep_their_identity(lake: Lake) -> None:
    """A table that is declared over files that are there gets no UUID: theirs may be another."""
    rule = f"  {lake.database}.t:\n    tags: {{email: pii}}\n"
    policy = lake.policy(tables=rule)
    first = made(lake, policy, f"LOCATION '{(lake.root / 'elsewhere').as_uri()}'")
    lake.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t (id INT, email STRING, note STRING) USING parquet LOCATION '{lake.root / 'elsewhere'}'")
    assert Catalog(lake.spark).table("t").uuid is None != first
    assert rows_of(lake.spark.table("t")) == [(1, SECRET, PLAIN)]


@pytest.mark.parametrize("words", ["CREATE OR REPLACE TABLE", "REPLACE TABLE"])
@pytest.mark.parametrize("rest", ["(id INT, email STRING) USING parquet", f"USING parquet AS SELECT {NEW}"])
def test_replace_is_refused_and_changes_nothing(lake: Lake, words: str, rest: str) -> None:
    """Spark's own catalog has no REPLACE TABLE; should a release learn it, this says that it must be judged here."""
    policy = lake.policy()
    made(lake, policy)
    before, files = rows_of(lake.spark.table("t")), data_files(lake.path("t"))
    with pytest.raises(AnalysisException, match="REPLACE TABLE"):
        lake.sql(f"{words} t {rest}")
    assert data_files(lake.path("t")) == files
    assert rows_of(lake.spark.table("t")) == before
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})


def made(lake: Lake, policy: Policy, where: str = "") -> str:
    """Make table ``t`` with a tag and a row, and return its UUID."""
    lake.sql(f"CREATE TABLE t (id INT, email STRING, note STRING) USING parquet {where}")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t SELECT {ROW}")
    return str(Catalog(lake.spark).table("t").uuid)
