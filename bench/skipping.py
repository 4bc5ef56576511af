"""The gain of queries from a store for data skipping: one table of many small encrypted files, with and without it."""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparkcrypt
from bench.harness import Report, in_memory, process
from bench.skipping_iceberg import add_iceberg
from bench.skipping_table import COLUMNS, FILES, QUERIES, ROUNDS, ROWS_EACH, SCHEMA, WARM_UP
from sparkcrypt.names import TABLE_UUID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICY = """
version: 1
key_service: {type: local, path: keys}
data_key_bits: 128
footer: {key: footer}
untagged: plaintext
run_state: state
index: {location: indexes}
tags: {pii: {key: pii}}
"""
MOST_FILES = {"one value": 30, "a range": 2, "a scattered value": 30}
"""The bar: files that a query may open; 1.5 % of them for one value, by bounds or by Bloom filters."""
MOST_OF_WITHOUT = 0.1
"""The bar: the time of a query divided by its time without skipping."""
MOST_WARM_MILLISECONDS, MOST_COLD_MILLISECONDS = 100, 1_500
"""The bars for listing a query's files, with the request to the helper: with the store open, and before."""
OBJECTS = 100_000
MOST_MEGABYTES = 256
"""The bar: a process's memory for an open store of that many objects."""


def run() -> Report:
    """Measure in a Spark process, and record its output."""
    report = Report(
        "skipping",
        f"{FILES:,} files of {ROWS_EACH} rows, bounds of a column in clear and of an encrypted one, "
        "Bloom filters of another",
    )
    with in_memory() as folder:
        printed = process([sys.executable, "-m", "bench.skipping", str(folder)])[1]
        again = [sys.executable, "-m", "bench.skipping", str(folder), "first"]
        printed += "".join(process(again)[1] for _ in range(ROUNDS - 1))
    cold = [float(line.split("|")[1]) for line in printed.splitlines() if line.startswith("cold|")]
    lines = [line.split("|") for line in printed.splitlines() if line.startswith("round|")]
    created = next(line.split("|")[1:] for line in printed.splitlines() if line.startswith("created|"))
    first = [float(line.split("|")[1]) for line in printed.splitlines() if line.startswith("first|")]
    report.facts = {
        "index create, seconds": float(created[0]),
        "store, bytes": int(created[1]),
        "warm-up rounds": WARM_UP,
    }
    for what in QUERIES:
        found = [[float(text) for text in line[2:]] for line in lines if line[1] == what][WARM_UP:]
        for place, name in enumerate(("off", "on")):
            opened, listing, wall = zip(*(line[3 * place : 3 * place + 3] for line in found), strict=True)
            if name == "on":
                report.at_most(f"{what}, skipping {name}: files opened", "files", opened, MOST_FILES[what])
                report.at_most(f"{what}, skipping {name}: listing", "ms", listing, MOST_WARM_MILLISECONDS)
            else:
                report.add(f"{what}, skipping {name}: files opened", "files", opened)
                report.add(f"{what}, skipping {name}: listing", "ms", listing)
            report.add(f"{what}, skipping {name}: the whole query", "ms", wall)
        report.at_most(
            f"{what}: time with skipping by that without", "x", [row[5] / row[2] for row in found], MOST_OF_WITHOUT
        )
    report.at_most("one value, skipping on: first listing of a process", "ms", first, MOST_COLD_MILLISECONDS)
    report.at_most("one value, skipping on: listing after the store was written", "ms", cold, MOST_COLD_MILLISECONDS)
    add_iceberg(report)
    _add_large_store(report)
    return report


def _add_large_store(report: Report) -> None:
    """Measure a store of many objects in separate processes: opening it, its memory, and one decision."""
    with in_memory() as folder:
        process([sys.executable, "-m", "bench.skipping_store", "write", str(folder), str(OBJECTS)])
        read = [sys.executable, "-m", "bench.skipping_store", "read", str(folder), str(OBJECTS)]
        found = [[float(text) for text in process(read)[1].split()] for _ in range(ROUNDS)]
    opened, decided, megabytes = zip(*found, strict=True)
    report.add(f"a store of {OBJECTS:,} objects: opened", "s", opened)
    report.add(f"a store of {OBJECTS:,} objects: one decision over all", "ms", decided)
    report.at_most(f"a store of {OBJECTS:,} objects: memory of the process", "MB", megabytes, MOST_MEGABYTES)


def main(folder: Path) -> None:
    """Create the table and its store; print files, listing time and elapsed time of each query, without and with it."""
    from sparkcrypt.keys.open_service import open_key_service

    (folder / "policy.yaml").write_text(POLICY)
    policy = sparkcrypt.load_policy(folder / "policy.yaml")
    for key in ("footer", "pii"):
        open_key_service(policy.key_service).create(key)
    spark = _open_table(folder, str(uuid.uuid4()))
    rows = spark.range(0, FILES * ROWS_EACH, 1, FILES)
    rows.selectExpr(*COLUMNS).write.insertInto("t")
    for number in range(1 + ROUNDS):  # each time the helper has to open the store again
        _index(folder)
        spark.sql("REFRESH TABLE t")
        listing = _measure(spark, QUERIES["one value"], "true")[1][1]
        print("cold" if number else "first", listing, sep="|", flush=True)
    for _ in range(WARM_UP + ROUNDS):
        for what, query in QUERIES.items():
            pairs = [_measure(spark, query, word) for word in ("false", "true")]
            if pairs[0][0] != pairs[1][0]:
                raise SystemExit(f"{what}: the rows differ, so the figures would mean nothing")
            print("round", what, *(figure for pair in pairs for figure in pair[1]), sep="|", flush=True)
    spark.stop()


def measure_first(folder: Path) -> None:
    """Print the time of the first listing in a new process, with an existing table and store."""
    spark = _open_table(folder, next((folder / "indexes").iterdir()).name)
    opened, listing, _ = _measure(spark, QUERIES["one value"], "true")[1]
    if opened > MOST_FILES["one value"]:
        raise SystemExit(f"{opened} files were opened: the store was not used, so the figure would mean nothing")
    print("first", listing, sep="|", flush=True)
    spark.stop()


def _open_table(folder: Path, identity: str) -> SparkSession:
    from bench.spark_write import session
    from sparkcrypt.spark.tables.tagging import set_tags

    policy = sparkcrypt.load_policy(folder / "policy.yaml")
    spark = session()
    spark.conf.set("spark.sql.files.maxPartitionBytes", "128m")
    sparkcrypt.configure(spark, policy)
    spark.sql(
        f"CREATE TABLE t ({SCHEMA}) USING parquet OPTIONS ('{TABLE_UUID}' = '{identity}') LOCATION '{folder / 't'}'"
    )
    set_tags(spark, "t", {"email": ["pii"], "account": ["pii"]}, policy)
    return spark


def _index(folder: Path) -> None:
    from click.testing import CliRunner

    from sparkcrypt.cli.main import cli

    for file in (folder / "t").glob("*.parquet"):
        past = file.stat().st_mtime - 60
        os.utime(file, (past, past))
    begin = time.perf_counter()
    place = ["--path", str(folder / "t"), "--policy", str(folder / "policy.yaml")]
    columns = [part for column in ("id", "email", "account:bloom") for part in ("--column", column)]
    done = CliRunner().invoke(cli, ["index", "create", *place, *columns])
    if done.exit_code:
        raise SystemExit(done.output)
    size = sum(file.stat().st_size for file in (folder / "indexes").rglob("*") if file.is_file())
    print("created", round(time.perf_counter() - begin, 2), size, sep="|")


def _measure(spark: SparkSession, query: str, word: str) -> tuple[list[Any], tuple[float, float, float]]:
    """Return a query's rows, and its opened files, milliseconds of listing, and total milliseconds."""
    spark.conf.set("spark.sparkcrypt.skipping", word)
    begin = time.perf_counter()
    frame = spark.sql(query)
    rows = frame.collect()
    wall = (time.perf_counter() - begin) * 1000
    plan = frame._jdf.queryExecution().executedPlan().executedPlan()
    while plan.getClass().getSimpleName() != "FileSourceScanExec":
        plan = plan.plan() if plan.getClass().getSimpleName().endswith("QueryStageExec") else plan.children().head()
    return rows, (
        plan.metrics().apply("numFiles").value(),
        plan.metrics().apply("metadataTime").value(),
        round(wall, 1),
    )


if __name__ == "__main__":
    (measure_first if sys.argv[2:] == ["first"] else main)(Path(sys.argv[1]))
