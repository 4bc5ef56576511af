"""The same rows and queries in a plain Iceberg table: files that its manifests leave, and the time of planning.

It runs in a separate environment with a Spark that Iceberg supports, and imports only packages of it.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from bench.skipping_table import COLUMNS, FILES, QUERIES, ROUNDS, ROWS_EACH, SCHEMA, WARM_UP

if TYPE_CHECKING:
    from bench.harness import Report

_PLANNED, _OPENED = "totalPlanningDuration", "resultDataFiles"


def add_iceberg(report: Report) -> None:
    """Add Iceberg's figures for the same queries; if its jars cannot be fetched, note that in the facts."""
    from bench.harness import in_memory, process
    from tests.services import ServiceUnavailableError
    from tests.services.installed import ROOT
    from tests.services.lakehouse import ICEBERG, find_lakehouse

    try:
        lakehouse = find_lakehouse(ICEBERG)
    except ServiceUnavailableError as unavailable:
        report.facts["Iceberg"] = f"not measured: {unavailable}"
        return
    report.facts["Iceberg"] = f"{ICEBERG.name} on Spark {ICEBERG.spark}, no encryption, Bloom filters in its files"
    with in_memory() as folder:
        jars = ",".join(map(str, lakehouse.jars))
        command = [str(lakehouse.python), "-m", "bench.skipping_iceberg", str(folder), jars]
        printed = process(command, env={"PYTHONPATH": str(ROOT)})[1]
    lines = [line.split("|") for line in printed.splitlines() if line.startswith("round|")]
    for what in QUERIES:
        found = [[float(text) for text in line[2:]] for line in lines if line[1] == what][WARM_UP:]
        opened, planned, wall = zip(*found, strict=True)
        report.add(f"{what}, Iceberg: files opened", "files", opened)
        report.add(f"{what}, Iceberg: planning", "ms", planned)
        report.add(f"{what}, Iceberg: the whole query", "ms", wall)


def main(folder: str, jars: str) -> None:
    """Create the table; print opened files, planning time and elapsed time of each query."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", jars)
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", f"{folder}/lake")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    properties = {
        "write.distribution-mode": "none",
        "write.parquet.bloom-filter-enabled.column.account": "true",
        "write.parquet.bloom-filter-fpp.column.account": "0.01",
    }
    told = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    spark.sql(f"CREATE TABLE lake.db.t ({SCHEMA}) USING iceberg TBLPROPERTIES ({told})")
    spark.range(0, FILES * ROWS_EACH, 1, FILES).selectExpr(*COLUMNS).writeTo("lake.db.t").append()
    spark.sql("USE lake.db")
    files = spark.table("lake.db.t.files").count()
    if files != FILES:
        raise SystemExit(f"Iceberg made {files} files of {FILES}, so the figures would mean nothing")
    for _ in range(WARM_UP + ROUNDS):
        for what, query in QUERIES.items():
            print("round", what, *_measure(spark, query), sep="|", flush=True)
    spark.stop()


def _measure(spark: Any, query: str) -> tuple[float, float, float]:
    """Return a query's opened files, milliseconds of planning, and total milliseconds."""
    begin = time.perf_counter()
    frame = spark.sql(query)
    rows = frame.collect()
    wall = (time.perf_counter() - begin) * 1000
    if not rows[0][0]:
        raise SystemExit(f"no row was found by {query!r}, so the figures would mean nothing")
    plan = frame._jdf.queryExecution().executedPlan().executedPlan()
    while plan.getClass().getSimpleName() != "BatchScanExec":
        plan = plan.plan() if plan.getClass().getSimpleName().endswith("QueryStageExec") else plan.children().head()
    opened, planned = (plan.metrics().apply(name).value() for name in (_OPENED, _PLANNED))
    return opened, planned, round(wall, 1)


if __name__ == "__main__":
    os.environ.pop("SPARK_HOME", None)  # set by the environment that started this process
    main(*sys.argv[1:])
