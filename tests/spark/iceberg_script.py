"""Writes to tables of Iceberg in a configured session, and prints what became of each way as one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkcrypt import configure, load_policy
from tests.spark.delta_script import SECRET, outcome

TABLE = "lake.db.t"
DELTAS = "lake.db.deltas"
UPDATED, INSERTED = "WHEN MATCHED THEN UPDATE SET *", "WHEN NOT MATCHED THEN INSERT *"


def main(root: Path, jars: str) -> None:
    """Run every way; ``root`` holds the policy."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", str(root / "lake"))
        .config("spark.sql.iceberg.compression-codec", "uncompressed")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(root / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.sql("CREATE DATABASE lake.db")
    spark.sql(f"CREATE TABLE {TABLE} (id BIGINT, email STRING) USING iceberg")
    modes = ", ".join(f"'write.{command}.mode'='merge-on-read'" for command in ("merge", "update", "delete"))
    spark.sql(
        f"CREATE TABLE {DELTAS} (id BIGINT, email STRING) USING iceberg TBLPROPERTIES ('format-version'='2', {modes})"
    )
    for table in (TABLE, DELTAS):
        spark.sql(f"INSERT INTO {table} VALUES (0, 'open')")
    configure(spark, load_policy(root / "plaintext.yaml"))
    row(spark, {"tags": ["pii"]}).createOrReplaceTempView("tagged")
    row(spark, {}).createOrReplaceTempView("plain")
    done = {way: outcome(run) for way, run in ways(spark, root).items()}
    done["secrets"] = ",".join(sorted(holding(root)))
    print("OUTCOMES " + json.dumps(done))


def ways(spark: SparkSession, root: Path) -> dict[str, Callable[[], Any]]:
    """Ways to write a tagged column, and one to write another."""
    tagged = spark.table("tagged")
    return {
        "insert": lambda: spark.sql(f"INSERT INTO {TABLE} SELECT * FROM tagged"),
        "ctas": lambda: spark.sql("CREATE TABLE lake.db.made USING iceberg AS SELECT * FROM tagged"),
        "ctas as Parquet": lambda: spark.sql("CREATE TABLE lake.db.named USING parquet AS SELECT * FROM tagged"),
        "saveAsTable": lambda: tagged.write.format("iceberg").saveAsTable("lake.db.saved"),
        "insertInto": lambda: tagged.write.insertInto(TABLE),
        "writeTo": lambda: tagged.writeTo(TABLE).append(),
        "overwrite": lambda: tagged.writeTo(TABLE).overwritePartitions(),
        "stream": lambda: stream(spark, root),
        "batch": lambda: stream(spark, root, merged=True),
        **row_level_ways(spark, tagged),
        "plain": lambda: spark.sql(merge(TABLE, "plain", f"{UPDATED} {INSERTED}")),
        "plain delta": lambda: spark.sql(merge(DELTAS, "plain", f"{UPDATED} {INSERTED}")),
        "other column": lambda: spark.sql(merge(TABLE, "tagged", "WHEN MATCHED THEN UPDATE SET t.id = s.id")),
        "filtered": lambda: spark.sql(f"DELETE FROM {TABLE} WHERE email IN (SELECT email FROM tagged)"),
    }


def row_level_ways(spark: SparkSession, tagged: DataFrame) -> dict[str, Callable[[], Any]]:
    """Statements that change rows, on tables that rewrite files and on those that write what differs."""
    whole = "WHEN MATCHED THEN UPDATE SET t.email = upper(s.email) WHEN NOT MATCHED BY SOURCE THEN DELETE"
    return {
        f"{how} {table}": partial(spark.sql, statement)
        for table in (TABLE, DELTAS)
        for how, statement in {
            "merge": merge(table, "tagged", f"{UPDATED} {INSERTED}"),
            "merge inserts": merge(table, "tagged", INSERTED),
            "merge whole": merge(table, "tagged", whole),
            "merge query": merge(table, "(SELECT id, concat(email, '') email FROM tagged)", UPDATED),
            "merge plain of nested": merge(
                table, "plain", "WHEN MATCHED THEN UPDATE SET t.email = (SELECT max(email) FROM tagged)"
            ),
            "update": f"UPDATE {table} SET email = (SELECT max(email) FROM tagged)",
        }.items()
    } | {
        "mergeInto": lambda: (
            tagged.alias("s").mergeInto(TABLE, F.expr(f"{TABLE}.id = s.id")).whenNotMatched().insertAll().merge()
        )
    }


def merge(table: str, source: str, clauses: str) -> str:
    """MERGE statement by the column ``id``."""
    return f"MERGE INTO {table} t USING {source} s ON t.id = s.id {clauses}"


def row(spark: SparkSession, metadata: dict[str, Any]) -> DataFrame:
    """One row; the secret is in that with a tag alone."""
    email = F.lit(SECRET if metadata else "open")
    return spark.range(1).select("id", email.alias("email", metadata=metadata))


def stream(spark: SparkSession, root: Path, merged: bool = False) -> None:
    """Append a tagged row by a stream, or merge it in each micro-batch."""
    folder = root / "in" / str(merged)
    folder.mkdir(parents=True)
    (folder / "0.txt").write_text("1\n")
    lines = spark.readStream.text(str(folder))
    email = F.lit(SECRET).alias("email", metadata={"tags": ["pii"]})
    writer = lines.select(F.lit(1).cast("long").alias("id"), email).writeStream
    writer = writer.option("checkpointLocation", str(root / "progress" / str(merged))).trigger(availableNow=True)
    query = writer.foreachBatch(merge_batch).start() if merged else writer.format("iceberg").toTable(TABLE)
    query.awaitTermination(120)


def merge_batch(rows: DataFrame, _batch: int) -> None:
    """Merge the rows of a micro-batch."""
    rows.createOrReplaceTempView("batch")
    rows.sparkSession.sql(merge(TABLE, "batch", f"{UPDATED} {INSERTED}"))


def holding(root: Path) -> set[str]:
    """Names of the files in which the secret stands."""
    return {file.name for file in root.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
