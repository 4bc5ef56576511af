"""Keys by partition value: one key per bucket, on static and dynamic inserts, and nothing that leaves the template."""

from __future__ import annotations

import pytest

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, data_files, encrypted_columns, footers, refusal, rows_of

pytestmark = pytest.mark.spark
TAGS = """
  contact: {key: "contact-{d:%Y-%m}"}
  area: {key: "area-{region}"}
"""


def keys_by_partition(lake: Lake, policy: Policy, table: str) -> dict[str, str | None]:
    """Return partition folder -> key id of the column email."""
    found = {}
    for summary in footers(lake.path(table), policy):
        found[summary.path.split("/")[-2]] = encrypted_columns(summary)["email"]
    return found


@pytest.mark.parametrize("kind", ["datasource", "hive", "hive serde"])
def test_two_buckets_in_one_write_get_two_keys(lake: Lake, kind: str) -> None:
    """A dynamic insert over two months uses two keys, a static one its month's; each is wrapped under its own id."""
    policy = lake.policy(TAGS, keys=("contact-2026-01", "contact-2026-02"))
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", str(kind != "hive serde").lower())
    if kind == "datasource":
        lake.sql("CREATE TABLE t (id INT, email STRING, d STRING) USING parquet PARTITIONED BY (d)")
    else:
        lake.sql("CREATE TABLE t (id INT, email STRING) PARTITIONED BY (d STRING) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["contact"]}, policy)
    lake.sql(
        "INSERT INTO t SELECT * FROM VALUES (1, 'a', '2026-01-05'), (2, 'b', '2026-02-05'), (3, 'c', '2026-02-06')"
    )
    if kind == "hive serde":  # the test below: its static inserts show no partition
        lake.spark.conf.set("parquet.sparkcrypt.partition", "d=2026-01-31")
    lake.sql("INSERT INTO t PARTITION (d = '2026-01-31') SELECT 4, 'd'")
    assert keys_by_partition(lake, policy, "t") == {
        "d=2026-01-05": "contact-2026-01",
        "d=2026-02-05": "contact-2026-02",
        "d=2026-02-06": "contact-2026-02",
        "d=2026-01-31": "contact-2026-01",
    }
    assert [row[0] for row in rows_of(lake.spark.table("t"))] == [1, 2, 3, 4]


def test_static_insert_by_hive_s_serde_does_not_show_its_partition(lake: Lake) -> None:
    """There a static insert stages outside partition folders: a template is refused unless told by an option."""
    policy = lake.policy(TAGS, keys=("contact-2026-01",))
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", "false")
    lake.sql("CREATE TABLE t (email STRING) PARTITIONED BY (d STRING) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["contact"]}, policy)
    said = refusal(lambda: lake.sql("INSERT INTO t PARTITION (d = '2026-01-31') SELECT 'a'"))
    assert "needs the value of partition column 'd', which this write does not show" in said
    assert data_files(lake.path("t")) == []


def test_key_that_is_not_there_is_never_made(lake: Lake) -> None:
    """A bucket whose key nobody created is an error, not a new key."""
    policy = lake.policy(TAGS, keys=("contact-2026-01",))
    lake.sql("CREATE TABLE t (id INT, email STRING, d STRING) USING parquet PARTITIONED BY (d)")
    set_tags(lake.spark, "t", {"email": ["contact"]}, policy)
    said = refusal(lambda: lake.sql("INSERT INTO t SELECT 1, 'a', '2026-03-01'"))
    assert "KeyNotFoundError" in said
    assert "contact-2026-03" in said
    assert data_files(lake.path("t")) == []
