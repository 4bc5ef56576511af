"""After the swap every ordinary operation on the table still works, and what it writes is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.tags.model import tag_property
from tests.spark.support import Lake, refusal, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

TABLES = {
    "partitioned using": (PARTITIONED["using"], False),
    "partitioned hive": (PARTITIONED["hive"], False),
    "managed using": (UNPARTITIONED["using"], False),
    "managed hive": (UNPARTITIONED["hive"], False),
    "external using": (UNPARTITIONED["using"], True),
    "external hive": (UNPARTITIONED["hive"], True),
}


@dataclass(frozen=True)
class Swapped:
    """A table that was encrypted by a run."""

    lake: Lake
    policy: Policy
    kind: str

    @property
    def partitioned(self) -> bool:
        """It has partitions."""
        return self.kind.startswith("partitioned")

    def clean(self, table: str = "t") -> int:
        """Return the count of rows; every file must match the plan."""
        found = verify_table(self.lake.spark, table, self.policy)
        assert found.ok, found.drift
        rows = self.lake.spark.table(table).count()
        assert found.rows == rows
        return rows


@pytest.fixture(params=TABLES)
def swapped(request: pytest.FixtureRequest, lake: Lake) -> Swapped:
    """A table of each kind that was encrypted by a run."""
    create, external = TABLES[request.param]
    fill(lake, create, external=external)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    return Swapped(lake, policy, request.param)


def test_sql_on_the_table(swapped: Swapped) -> None:
    """After each of ADD COLUMNS, INSERT, RENAME, OVERWRITE, partition changes, TRUNCATE every row is there once.

    Every file is as planned each time, and DROP leaves nothing in the catalog.
    """
    lake, sql = swapped.lake, swapped.lake.sql
    last = ", 1" if swapped.partitioned else ""
    sql("ALTER TABLE t ADD COLUMNS (extra STRING)")
    assert lake.spark.table("t").where("extra IS NULL").count() == 4
    sql(f"INSERT INTO t VALUES (7, 'seven', 'n', 'e'{last})")
    assert swapped.clean() == 5
    before = rows_of(lake.spark.table("t"))
    sql("ALTER TABLE t RENAME TO u")
    assert rows_of(lake.spark.table("u")) == before
    assert swapped.clean("u") == 5
    sql("ALTER TABLE u RENAME TO t")
    _partitions(swapped) if swapped.partitioned else _overwrite(swapped)
    if "external" not in swapped.kind:  # Spark refuses to truncate external tables
        sql("TRUNCATE TABLE t")
        sql("REFRESH TABLE t")
        assert lake.spark.table("t").count() == 0
    sql("DROP TABLE t")
    assert not lake.spark.catalog.tableExists("t")


def _overwrite(swapped: Swapped) -> None:
    swapped.lake.sql("INSERT OVERWRITE t VALUES (9, 'nine', 'n', 'e')")
    assert swapped.clean() == 1


def _partitions(swapped: Swapped) -> None:
    sql = swapped.lake.sql
    sql("INSERT OVERWRITE t PARTITION (p = 1) VALUES (9, 'nine', 'n', 'e')")
    assert swapped.clean() == 3
    swapped.lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    sql("INSERT OVERWRITE t PARTITION (p) VALUES (10, 'ten', 'n', 'e', 0)")
    assert swapped.clean() == 2
    sql("ALTER TABLE t ADD PARTITION (p = 5)")
    sql("INSERT INTO t PARTITION (p = 5) VALUES (7, 'seven', 'n', 'e')")
    assert swapped.clean() == 3
    sql("ALTER TABLE t DROP PARTITION (p = 5)")
    sql("MSCK REPAIR TABLE t")
    assert swapped.clean() == 2


def test_save_as_table(swapped: Swapped) -> None:
    """SaveAsTable appends, and overwrites, as on any table; the table that overwriting makes anew keeps the tags."""
    lake = swapped.lake
    frame = lake.sql("SELECT 7 AS id, 'seven' AS email, 'n' AS note" + (", 1 AS p" if swapped.partitioned else ""))
    writer = frame.write.format("hive" if "hive" in swapped.kind else "parquet").mode("append")
    (writer.partitionBy("p") if swapped.partitioned else writer).saveAsTable("t")
    assert swapped.clean() == 5
    lake.spark.range(3).selectExpr("cast(id AS INT) AS id", "'x' AS email").write.mode("overwrite").saveAsTable("t")
    assert lake.spark.table("t").count() == 3
    assert Catalog(lake.spark).table("t").options[tag_property(("email",))] == "pii"


@pytest.mark.parametrize("kind", ["partitioned using", "external using", "managed using"])
def test_session_that_planned_before_the_swap(lake: Lake, kind: str) -> None:
    """A session that planned a read before the swap reads the right rows after it.

    Only where the folder had to be renamed it fails, loudly, and reads them once the table is refreshed.
    """
    create, external = TABLES[kind]
    fill(lake, create, external=external)
    old = lake.spark.newSession()
    old.sql(f"USE {lake.database}")
    before = rows_of(old.table("t"))
    frame = old.table("t")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    if kind == "managed using":
        assert "does not exist" in refusal(frame.collect)
    else:
        assert rows_of(frame) == before
    old.catalog.refreshTable("t")
    assert rows_of(old.table("t")) == before
