"""A large table on a cluster of two workers of one core: the whole backfill by both engines, from plan to audit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report
from tests.services.cluster import start_cluster
from tests.services.metastore import Metastore, start_metastore

ROOT = Path(__file__).parents[1]
GIGABYTES = 10
PARTITIONS = 40
BY_SPARK = 4
"""The number of partitions that Spark's engine rewrites; it would take more than an hour for all."""
CORES = 2
ROWS_A_GROUP = 1_000_000
POLICY = """
version: 1
key_service: {type: local, path: keys/}
algorithm: AES_GCM_V1
data_key_bits: 256
footer: {key: footer, mode: encrypted}
audit: {key: audit}
untagged: plaintext
run_state: state/
tags: {pii: {key: pii}}
tables:
  default.large: {tags: {s0: [pii], s1: [pii], l0: [pii]}}
  default.part: {tags: {s0: [pii], s1: [pii], l0: [pii]}}
"""


def run() -> Report:
    """Create a table of 10 GB, and one of its first partitions; encrypt one of them by each engine."""
    report = Report(
        "cluster",
        f"a table of {GIGABYTES} GB in {PARTITIONS} partitions, two workers of one core, on disk",
        least_runs=1,
    )
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        metastore = start_metastore(folder / "metastore")
        stack.callback(metastore.stop)
        cluster = start_cluster(folder / "cluster", env={"PYSPARK_PYTHON": sys.executable})
        stack.callback(cluster.stop)
        site = _Site(folder, metastore, cluster.master_url)
        total = site.make()
        native = site.backfill("default.large", "native")
        spark = site.backfill("default.part", "spark")
        report.facts = {
            "bytes": {"native": native["totals"]["bytes_before"], "spark": spark["totals"]["bytes_before"]},
            "files": native["totals"]["files_rewritten"],
            "rows": native["totals"]["rows"],
        }
        if native["totals"]["bytes_before"] != total or native["outcome"] != "done" or spark["outcome"] != "done":
            raise RuntimeError(f"not everything was rewritten: {native['totals']}, {spark['totals']}")
        speeds = {
            engine: made["totals"]["bytes_before"] / 1e6 / made["seconds"] / CORES
            for engine, made in (("native", native), ("spark", spark))
        }
        report.add("native: from plan to audit", "s", [native["seconds"]])
        report.add("native: speed of one core", "MB/s", [speeds["native"]])
        report.add(f"spark: from plan to audit, {BY_SPARK} of {PARTITIONS} partitions", "s", [spark["seconds"]])
        report.add("spark: speed of one core", "MB/s", [speeds["spark"]])
        report.add("native by spark", "x", [speeds["native"] / speeds["spark"]])
    return report


class _Site:
    """The folder of a measurement, in which it starts jobs."""

    def __init__(self, folder: Path, metastore: Metastore, master: str) -> None:
        self._folder = folder
        conf = folder / "conf"
        conf.mkdir()
        settings = {
            **metastore.spark_conf(),
            "spark.master": master,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "896m",
        }
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        (folder / "policy.yaml").write_text(POLICY)
        self._environment = {
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }

    def make(self) -> int:
        """Write a partition's file, copy it to every partition, and register both tables; return the first's length."""
        file = self._folder / "one.parquet"
        _write(file, GIGABYTES * 10**9 // PARTITIONS)
        for table, partitions in (("large", PARTITIONS), ("part", BY_SPARK)):
            for number in range(partitions):
                place = self._folder / table / f"p={number}"
                place.mkdir(parents=True)
                shutil.copyfile(file, place / "part-00000.parquet")
        for key in ("footer", "audit", "pii"):
            self._run([_tool("sparkcrypt"), "keys", "create", key, "--policy", "policy.yaml"])
        self._run([sys.executable, "-m", "bench.cluster", str(self._folder)])
        return file.stat().st_size * PARTITIONS

    def backfill(self, table: str, engine: str) -> Any:
        """Run the job and return its report."""
        report = self._folder / f"{engine}.json"
        job = [_tool("spark-submit"), str(ROOT / "jobs" / "backfill.py"), "--table", table, "--engine", engine]
        options = ["--parallelism", "2", "--policy", str(self._folder / "policy.yaml"), "--report", str(report)]
        self._run([*job, *options])
        return json.loads(report.read_text())

    def _run(self, command: list[str]) -> None:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        environment = {**known, **self._environment}
        done = subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:3])} … ended with {done.returncode}: {done.stderr[-3000:]}")


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _write(path: Path, length: int) -> None:
    """Write rows of numbers and short strings, snappy, in groups, until the file is about as long as given."""
    random = np.random.default_rng(1)

    def group() -> pa.Table:
        columns: dict[str, object] = {f"l{n}": random.integers(0, 1 << 40, ROWS_A_GROUP) for n in range(4)}
        columns |= {f"d{n}": random.random(ROWS_A_GROUP) for n in range(3)}
        for n in range(3):
            columns[f"s{n}"] = pa.array(random.integers(0, 1 << 30, ROWS_A_GROUP)).cast(pa.string())
        return pa.table(columns)

    first = group()
    with pq.ParquetWriter(path, first.schema, compression="snappy", use_dictionary=False) as writer:
        writer.write_table(first)
        while path.stat().st_size < length * 0.95:
            writer.write_table(group())


def main(folder: Path) -> None:
    """Register the tables over the existing folders."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.enableHiveSupport().getOrCreate()
    columns = [*(f"l{n} BIGINT" for n in range(4)), *(f"d{n} DOUBLE" for n in range(3))]
    columns += [f"s{n} STRING" for n in range(3)]
    for table in ("large", "part"):
        place = (folder / table).as_uri()
        spark.sql(
            f"CREATE EXTERNAL TABLE {table} ({', '.join(columns)}) PARTITIONED BY (p INT) STORED AS PARQUET "
            f"LOCATION '{place}'"
        )
        spark.sql(f"MSCK REPAIR TABLE {table}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
