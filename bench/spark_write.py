"""The Spark process that creates a benchmark's table, or encrypts it; prints wall and CPU seconds of each round.

Usage: spark_write.py make TABLE CODEC | encrypt TABLE CODEC TARGET [COLUMN,… [OPTION=VALUE…]]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy

ROWS, FILES, ROUNDS = 8_000_000, 4, 7
TAGGED = ("l0", "l1", "d0", "d1", "s0", "s1")


def main() -> None:
    """Create the table or encrypt it, as the first argument says."""
    spark = session()
    if sys.argv[1] == "make":
        table(spark, ROWS, FILES).write.option("compression", sys.argv[3]).parquet(sys.argv[2])
    else:
        _encrypt(spark, *sys.argv[2:])
    spark.stop()


def session() -> SparkSession:
    """Return a session on two cores."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.files.maxPartitionBytes", "1g")
        .config("spark.sql.debug.maxToStringFields", "10")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def table(spark: SparkSession, rows: int, files: int, *first: str) -> DataFrame:
    """Return four columns of longs, three of doubles and three of short strings, in a given number of files.

    Args:
        spark: the session.
        rows: the total number of rows.
        files: the number of files.
        first: expressions over ``id``, the number of a row, for columns before these.
    """
    columns = [F.expr(f"xxhash64(id, {n})").alias(f"l{n}") for n in range(4)]
    columns += [F.rand(n).alias(f"d{n}") for n in range(3)]
    columns += [F.expr(f"concat('word', pmod(xxhash64(id, {n}), 5000))").alias(f"s{n}") for n in range(3)]
    return spark.range(0, rows, 1, files).select(*map(F.expr, first), *columns)


def policy_in(folder: str) -> Policy:
    """Return a policy of one tag, with its keys, in a folder."""
    policy = policy_from_text(
        "version: 1\nkey_service: {type: local, path: keys}\ndata_key_bits: 128\nfooter: {key: footer}\n"
        "untagged: plaintext\nrun_state: state\ntags: {pii: {key: pii}}\n",
        where="policy.yaml",
        base=folder,
    )
    for key in ("footer", "pii"):
        open_key_service(policy.key_service).create(key)
    return policy


def tagged(frame: DataFrame, names: Iterable[str], metadata: Mapping[str, Any] | None = None) -> DataFrame:
    """Return the rows with the tag, or other metadata, on these columns."""
    chosen, given = set(names), dict(metadata or {"tags": ["pii"]})
    return frame.select(*(F.col(name).alias(name, metadata=given if name in chosen else {}) for name in frame.columns))


def _encrypt(
    spark: SparkSession, source: str, codec: str, target: str, columns: str = ",".join(TAGGED), *options: str
) -> None:
    writing = dict(option.split("=") for option in options)
    with tempfile.TemporaryDirectory() as folder:
        sparkcrypt.configure(spark, policy_in(folder))
        cpu_seconds = jvm_clock(spark)
        rows = tagged(spark.read.parquet(source), columns.split(","))
        for _ in range(ROUNDS):
            wall, cpu = time.perf_counter(), cpu_seconds()
            rows.write.option("compression", codec).options(**writing).parquet(target)
            print(time.perf_counter() - wall, cpu_seconds() - cpu, flush=True)
            check(target)
            shutil.rmtree(target)


def jvm_clock(spark: SparkSession) -> Callable[[], float]:
    """Return a function that returns the CPU seconds of the session's JVM."""
    machine, gateway = spark._jvm, spark.sparkContext._gateway
    assert machine is not None
    assert gateway is not None
    bean = machine.java.lang.management.ManagementFactory.getOperatingSystemMXBean()
    arrays = gateway.new_array
    method = machine.java.lang.Class.forName("com.sun.management.OperatingSystemMXBean").getMethod(
        "getProcessCpuTime", arrays(machine.java.lang.Class, 0)
    )
    nothing = arrays(machine.java.lang.Object, 0)
    return lambda: float(method.invoke(bean, nothing)) / 1e9


def check(folder: str) -> None:
    """Check that the contender encrypted the files.

    Raises:
        SystemExit: the files are not encrypted.
    """
    file = next(Path(folder).glob("part-*.parquet"))
    if inspect_file(file).footer != "encrypted":
        raise SystemExit(f"{file} is not encrypted, so its figure would mean nothing")


if __name__ == "__main__":
    main()
