"""Writes to Delta tables under two policies, and prints what became of each way as one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkcrypt import configure, load_policy
from sparkcrypt.spark.jvm.gateway import jvm

SECRET = "CANARY-secret-value"


def main(root: Path, jars: str) -> None:
    """Run every way; ``root`` holds two policies."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", jars)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")  # else 50 tasks for each look at a log
        .config("spark.sql.warehouse.dir", str(root / "warehouse"))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.parquet.compression.codec", "uncompressed")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    tagged = rows(spark, {"tags": ["pii"]})
    for name in (
        "path",
        "sql",
        "merge",
        "stream",
    ):  # tables whose log has the tag, from before the session was configured
        rows(spark, {"tags": ["pii"]}, secret="open").write.format("delta").save(str(root / name))
    rows(spark, {}, secret="open").write.format("delta").save(str(root / "plain"))
    rows(spark, {"tags": ["pii"]}, secret="open").write.parquet(str(root / "folder"))
    rows(spark, {"tags": ["pii"]}, secret="open").write.format("parquet").saveAsTable("converted")
    configure(spark, load_policy(root / "plaintext.yaml"))
    done: dict[str, str] = {}
    plain = rows(spark, {})
    plain.createOrReplaceTempView("plain")
    tagged.createOrReplaceTempView("tagged")
    ways: dict[str, Callable[[], Any]] = {
        "save": lambda: tagged.write.format("delta").save(str(root / "new")),
        "saveAsTable": lambda: tagged.write.format("delta").saveAsTable("made"),
        "ctas": lambda: spark.sql("CREATE TABLE selected USING delta AS SELECT * FROM tagged"),
        "append": lambda: plain.write.format("delta").mode("append").save(str(root / "path")),
        "writeTo": lambda: plain.writeTo(f"delta.`{root}/path`").append(),
        "overwrite": lambda: plain.write.format("delta").mode("overwrite").save(str(root / "path")),
        "insert": lambda: spark.sql(f"INSERT INTO delta.`{root}/sql` SELECT * FROM plain"),
        "update": lambda: spark.sql(f"UPDATE delta.`{root}/sql` SET email = '{SECRET}'"),
        "merge": lambda: spark.sql(
            f"MERGE INTO delta.`{root}/merge` t USING plain s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
        "derived": lambda: spark.sql(
            f"MERGE INTO delta.`{root}/plain` t USING (SELECT id, concat(email, '') AS email FROM tagged) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        ),
        "convert": lambda: spark.sql(f"CONVERT TO DELTA parquet.`{root}/folder`"),
        "convert table": lambda: spark.sql("CONVERT TO DELTA converted"),
        "stream": lambda: stream(spark, root, "stream"),
        "untagged": lambda: plain.write.format("delta").save(str(root / "untagged")),
    }
    for name, way in ways.items():
        done[name] = outcome(way)
    done["secrets"] = ",".join(sorted(holding(root)))
    configure(spark, load_policy(root / "footer_key.yaml"))
    done["checkpoint"] = outcome(lambda: checkpoints(spark, root))
    print("OUTCOMES " + json.dumps(done))


def rows(spark: SparkSession, metadata: dict[str, Any], secret: str = SECRET) -> DataFrame:
    """One row with a column that has this metadata."""
    return spark.range(1).select("id", F.lit(secret).alias("email", metadata=metadata))


def stream(spark: SparkSession, root: Path, table: str) -> None:
    """Append an untagged row to a table by a stream."""
    (root / "in").mkdir()
    (root / "in" / "0.txt").write_text(f"{SECRET}\n")
    lines = spark.readStream.text(str(root / "in"))
    rows = lines.select(F.lit(1).cast("long").alias("id"), F.col("value").alias("email"))
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(root / "progress"))
    writer.trigger(availableNow=True).start(str(root / table)).awaitTermination(120)


def checkpoints(spark: SparkSession, root: Path) -> None:
    """Append until there is a checkpoint, and read the table by a log without its first entries."""
    path = root / "checked"
    for _ in range(12):
        rows(spark, {}).write.format("delta").mode("append").save(str(path))
    found = list((path / "_delta_log").glob("*.checkpoint*.parquet"))
    assert found, "no checkpoint"
    assert all(file.read_bytes()[-4:] == b"PAR1" for file in found), "encrypted checkpoint"
    assert all(file.read_bytes()[-4:] == b"PARE" for file in path.glob("*.parquet")), "plaintext file"
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert spark.read.format("delta").load(str(path)).count() == 12
    rows(spark, {}).write.format("delta").mode("append").save(str(path))


def holding(root: Path) -> set[str]:
    """Names of the tables in whose files the secret stands, the untagged one left out."""
    found = {file for file in root.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()}
    return {file.relative_to(root).parts[0] for file in found} - {"untagged", "in"}


def outcome(way: Callable[[], Any]) -> str:
    """Return ``done``, or what the error says with its causes."""
    try:
        way()
    except Exception as error:  # noqa: BLE001  # what it says is judged by the test
        said, java = str(error), getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        while java is not None:
            said, java = f"{said}\n{java.toString()}", java.getCause()
        return said
    return "done"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
