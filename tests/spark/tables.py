"""Small tables of the tests on a real Spark, plain or with a tag."""

from __future__ import annotations

from typing import Any

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, rows_of

PARTITIONED = {
    "using": "CREATE TABLE t (id INT, email STRING, note STRING, p INT) USING parquet PARTITIONED BY (p)",
    "hive": "CREATE TABLE t (id INT, email STRING, note STRING) PARTITIONED BY (p INT) STORED AS PARQUET",
}
UNPARTITIONED = {
    "using": "CREATE TABLE t (id INT, email STRING, note STRING) USING parquet",
    "hive": "CREATE TABLE t (id INT, email STRING, note STRING) STORED AS PARQUET",
}


def fill(lake: Lake, create: str, *, external: bool = False) -> None:
    """Create a plaintext table of two files per partition, or of two files."""
    if external:
        create = create.replace("CREATE TABLE", "CREATE EXTERNAL TABLE" if "STORED" in create else "CREATE TABLE")
        create += f" LOCATION '{(lake.root / 'external').as_uri()}'"
    with lake.stranger() as stranger:
        stranger.sql(create)
        values = [
            f"({n}, '{SECRET}-{n}', 'note {n}'" + (f", {n % 2})" if "PARTITIONED" in create else ")") for n in range(4)
        ]
        for half in (values[:2], values[2:]):
            stranger.sql(f"INSERT INTO t VALUES {', '.join(half)}")


def tagged(lake: Lake, create: str) -> tuple[Policy, list[Any]]:
    """Create a plaintext table with a tag; return its policy and rows."""
    fill(lake, create)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy, rows_of(lake.spark.table("t"))


def make_table(lake: Lake, name: str, *, partitions: int = 3, tagged: str | None = "email", suffix: str = "") -> None:
    """Create a plaintext table of one file per partition (unpartitioned with 0), and tag a column."""
    columns = "id INT, email STRING, pay DOUBLE"
    with lake.stranger() as stranger:
        if partitions:
            stranger.sql(f"CREATE TABLE {name} ({columns}, p INT) USING parquet PARTITIONED BY (p) {suffix}")
            for p in range(partitions):
                stranger.sql(f"INSERT INTO {name} VALUES ({p}, '{SECRET}-{p}', {p}.5, {p})")
        else:
            stranger.sql(f"CREATE TABLE {name} ({columns}) USING parquet {suffix}")
            stranger.sql(f"INSERT INTO {name} VALUES (1, '{SECRET}-1', 1.5)")
    if tagged is not None:
        set_tags(lake.spark, name, {tagged: ["pii"]}, None)
