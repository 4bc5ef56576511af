"""The Spark side of the backfill's demo, one step a process: make the table, read it in a loop, append in a loop."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt.spark.jvm.gateway import read_java_error
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.spark.tasks.digest import digest_rows

TABLE = "shop.orders"
PARTITIONS = 24
ROWS = 96_000
LATE = 10_000_000
"""Ids from here on are those of rows that the writer appends."""


def session(policy: str | None = None) -> SparkSession:
    """Return a session as the demo's spark-defaults.conf describes it, under a policy if one is given."""
    spark = SparkSession.builder.appName("sparkcrypt backfill demo").enableHiveSupport().getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    if policy is not None:
        sparkcrypt.configure(spark, sparkcrypt.load_policy(policy))
    return spark


def make(policy: str) -> None:
    """Make a table of orders, a partition a day, tagged before its first row, so that every write is encrypted."""
    spark = session(policy)
    spark.sql("CREATE DATABASE IF NOT EXISTS shop")
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, email STRING, card STRING, amount DOUBLE) "
        "PARTITIONED BY (day INT) STORED AS PARQUET"
    )
    set_tags(spark, TABLE, {"email": ["contact"], "card": ["card"]}, sparkcrypt.load_policy(policy))
    rows(spark.range(0, ROWS, 1, 2)).write.insertInto(TABLE)
    digest(policy)


def rows(numbers: DataFrame) -> DataFrame:
    """Return an order for each number."""
    return numbers.select(
        "id",
        F.concat(F.lit("person-"), F.md5(F.col("id").cast("string")), F.lit("@example.org")).alias("email"),
        F.sha1(F.col("id").cast("string")).alias("card"),
        (F.col("id") % 1000 / 7).alias("amount"),
        (F.col("id") % PARTITIONS).cast("int").alias("day"),
    )


def digest(policy: str) -> None:
    """Print the digest of the rows that were there at first, and the ids that were appended."""
    frame = sparkcrypt.read_table(session(policy), TABLE, sparkcrypt.load_policy(policy))
    first = digest_rows(frame.where(f"id < {LATE}")).to_dict()
    late = sorted(row.id for row in frame.where(f"id >= {LATE}").select("id").collect())
    print(json.dumps({"first": first, "late": late}))


def read(policy: str, stop: str, log: str) -> None:
    """Read the table again and again; note every look that found a wrong row, a row twice, or an error."""
    spark, wrong, looks = session(policy), [], 0
    amount = sum(number % 1000 / 7 for number in range(ROWS))
    while not Path(stop).exists():
        started = time.monotonic()
        try:
            spark.catalog.refreshTable(TABLE)
            first = F.col("id") < LATE
            found = spark.table(TABLE).agg(
                F.sum(first.cast("int")).alias("rows"),
                F.sum(F.when(first, F.col("amount"))).alias("amount"),
                (F.count("id") - F.countDistinct("id")).alias("twice"),
                F.sum((F.col("email").isNull() | ~F.col("email").startswith("person-")).cast("int")).alias("garbled"),
            )
            (row,) = found.collect()
            if (row.rows, row.twice, row.garbled) != (ROWS, 0, 0) or abs(row.amount - amount) > 1e-3:
                wrong.append(str(row))
        except Exception as error:  # noqa: BLE001  # whatever a reader meets is what this looks for
            wrong.append(": ".join(read_java_error(error)))
        looks += 1
        Path(log).write_text(json.dumps({"looks": looks, "wrong": wrong}))
        rest(started)


def append(policy: str, stop: str, log: str) -> None:
    """Append a row to some partition again and again, and note each that was written."""
    spark, written, number = session(policy), [], LATE
    while not Path(stop).exists():
        started = time.monotonic()
        values = f"{number}, 'person-late@example.org', 'late', 0.0, {random.randrange(PARTITIONS)}"
        spark.sql(f"INSERT INTO {TABLE} VALUES ({values})")
        written.append(number)
        Path(log).write_text(json.dumps(written))
        number += 1
        rest(started)


def rest(started: float) -> None:
    """Pause for three times as long as the work took, so that the run gets its share of a small machine."""
    time.sleep(max(0.5, 3 * (time.monotonic() - started)))


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    steps: dict[str, Callable[..., None]] = {"make": make, "digest": digest, "read": read, "append": append}
    steps[step](*arguments)
