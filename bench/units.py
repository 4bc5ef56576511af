"""CPU of a run for each unit and for each byte, beyond what every run costs: small partitions, and large ones.

The metastore is embedded, so its work counts too, and the JVM is started as a command starts it.  A run over few units
of one small file is the fixed part.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Report, process
from bench.rotation import cpu_seconds, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkcrypt.policy.model import Policy

FEW, MANY, LARGE = 4, 1_000, 12
SMALL_BYTES, LARGE_BYTES = 6_000, 240_000_000
AMOUNTS = {"few": (FEW, SMALL_BYTES), "many": (MANY, SMALL_BYTES), "large": (LARGE, LARGE_BYTES)}
"""What is measured: how many partitions, and the bytes of the one file of each."""


def run() -> Report:
    """Encrypt four small partitions, a thousand of them, and a dozen large ones."""
    found = {what: _child(what) for what in AMOUNTS}
    few, many, large = (found[what] for what in AMOUNTS)
    report = Report(
        "units",
        f"encrypt {MANY:,} partitions of one small file, and {LARGE} of one of {LARGE_BYTES // 1_000_000} MB, beyond "
        f"what {FEW} small ones cost",
        least_runs=1,
    )
    report.add(f"{FEW} small units, CPU of all processes", "s", [few["cpu"]])
    report.at_most("a further small unit, CPU of all processes", "s", [(many["cpu"] - few["cpu"]) / (MANY - FEW)], 0.12)
    report.add(f"{MANY:,} small units, on the clock", "s", [many["seconds"]])
    report.at_least(
        "large units, a second of CPU of all processes",
        "MB/s",
        [large["bytes"] / 1e6 / (large["cpu"] - few["cpu"])],
        450,
    )
    report.add("large units, on the clock", "s", [large["seconds"]])
    report.facts = {**found, "CPU seconds": "of driver, JVM and workers, from the call to its report"}
    return report


def _child(what: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.units", what, folder]
        found: dict[str, Any] = json.loads(process(command, env={"PYSPARK_PYTHON": sys.executable})[1].splitlines()[-1])
        return found


def main(what: str, folder: Path) -> None:
    """Measure one thing and print it."""
    import sparkcrypt
    from bench.spark_write import policy_in
    from sparkcrypt.spark.setup.command_session import spark_session

    conf = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }
    with spark_session("units", master="local[2]", conf=conf) as spark:
        policy = policy_in(str(folder))
        sparkcrypt.configure(spark, policy)
        units, length = AMOUNTS[what]
        print(json.dumps(_encrypt(spark, policy, folder, units, length)))


def _encrypt(spark: SparkSession, policy: Policy, folder: Path, units: int, length: int) -> dict[str, Any]:
    from sparkcrypt import encrypt_table

    size = _make_table(spark, policy, folder, units, length)
    began, used = time.perf_counter(), cpu_seconds()
    report = encrypt_table(spark, "t", policy)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - used
    if (report.outcome, report.files_rewritten) != ("done", units):
        raise SystemExit(f"the run ended otherwise: {report.to_dict()}")
    return {"seconds": seconds, "cpu": cpu, "units": units, "bytes": size}


def _make_table(spark: SparkSession, policy: Policy, folder: Path, units: int, length: int) -> int:
    """Create a table of partitions of one file each; return their total size in bytes."""
    from sparkcrypt.spark.tables.tagging import set_tags

    place, plain = folder / "t", folder / "plain.parquet"
    columns = "id BIGINT, email STRING, phone STRING, amount DOUBLE"
    spark.sql(f"CREATE TABLE t ({columns}, p INT) USING parquet PARTITIONED BY (p) LOCATION '{place.as_uri()}'")
    set_tags(spark, "t", {"email": ["pii"], "phone": ["pii"]}, policy)
    write_rows(plain, length)
    for unit in range(units):
        (place / f"p={unit}").mkdir(parents=True)
        shutil.copyfile(plain, place / f"p={unit}" / "part-00000.parquet")
    spark.sql("MSCK REPAIR TABLE t")
    return plain.stat().st_size * units


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
