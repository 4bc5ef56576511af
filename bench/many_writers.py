"""A reader's calls of the key service on a table that twenty JVMs wrote, before and after one rotation.

Each executor is a process with its own JVM and helper, in which parquet-mr generates the KEKs of its files.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import Report, process
from sparkcrypt.keys.opened import KEY_LOG

WRITERS = 20
MASTERS = ("footer", "pii")
SECONDS_A_TASK = 5
"""The time that a task occupies its executor, which has one core, so that each executor gets one task."""


def run() -> Report:
    """Write a table by that many executors, read it in a new JVM, rotate one of its keys, and read it again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = _child(folder, "write")
        before = _calls(folder)
        rotated = _child(folder, "rotate")
        after = _calls(folder)
    report = Report(
        "many_writers", f"a table that {WRITERS} JVMs wrote, under {len(MASTERS)} master keys", least_runs=1
    )
    report.add("JVMs that wrapped keys", "JVMs", [written["helpers"]])
    report.add("calls of a reader's JVM, as it was written", "calls", [before])
    report.at_most("calls of a reader's JVM, after a rotation", "calls", [after], len(MASTERS))
    report.facts = {"written": written, "rotated": rotated}
    if written["helpers"] != WRITERS or before != WRITERS * len(MASTERS):
        raise RuntimeError(f"{WRITERS} JVMs were to write; {written['helpers']} did, and a reader made {before} calls")
    return report


def _child(folder: Path, what: str) -> dict[str, Any]:
    log = folder / f"{what}.log"
    log.write_text("")
    command = [sys.executable, "-m", "bench.many_writers", what, str(folder)]
    found: dict[str, Any] = json.loads(process(command, env={KEY_LOG: str(log)})[1].splitlines()[-1])
    calls = [line for line in map(json.loads, log.read_text().splitlines()) if line["key_id"] in MASTERS]
    wrapped = {line["pid"] for line in calls if line["op"] == "wrap"}
    return {**found, "helpers": len(wrapped), "unwraps": sum(line["op"] == "unwrap" for line in calls)}


def _calls(folder: Path) -> int:
    return int(_child(folder, "read")["unwraps"])


def main(what: str, folder: Path) -> None:
    """Do one step, and print its result."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import sparkcrypt
    from bench.spark_write import policy_in
    from sparkcrypt.runs.keys.rotate import rotate_key
    from sparkcrypt.spark.tables.tagging import set_tags

    master = f"local-cluster[{WRITERS},1,512]" if what == "write" else "local[2]"
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").enableHiveSupport()
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    builder = builder.config("spark.executor.memory", "384m").config("spark.testing.reservedMemory", "0")
    builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    builder = builder.config("spark.scheduler.maxRegisteredResourcesWaitingTime", "300s")
    database = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
    spark = builder.config("spark.hadoop.javax.jdo.option.ConnectionURL", database).getOrCreate()
    policy = policy_in(str(folder))
    sparkcrypt.configure(spark, policy)
    found: dict[str, Any] = {}
    if what == "write":
        spark.sql("CREATE TABLE t (id BIGINT, email STRING) USING parquet")
        set_tags(spark, "t", {"email": ["pii"]}, policy)
        pause = F.udf(_pause, "bigint")
        rows = spark.range(0, WRITERS, 1, WRITERS).select(pause("id").alias("id"), F.expr("concat('e', id)").alias("e"))
        rows.write.insertInto("t")
    elif what == "rotate":
        done = rotate_key(spark, policy, "pii", tables=["t"])
        found = {"outcome": done.outcome, "files": done.tables[0].files_rewritten}
    elif spark.table("t").where("email IS NOT NULL").count() != WRITERS:
        raise SystemExit("a reader did not find every row")
    print(json.dumps(found))
    spark.stop()


def _pause(number: int) -> int:
    import time

    time.sleep(SECONDS_A_TASK)
    return number


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
