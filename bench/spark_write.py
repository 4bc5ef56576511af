"""Makes the table of a benchmark, or encrypts it by Spark's read and write; prints wall and CPU seconds a round.

Usage: spark_write.py make TABLE CODEC | encrypt TABLE CODEC TARGET
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.parquet import inspect_file
from sparkcrypt.policy.load import policy_from_text

ROWS, FILES, ROUNDS = 8_000_000, 4, 7
TAGGED = ("l0", "l1", "d0", "d1", "s0", "s1")


def main() -> None:
    """Do what the first argument says."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.files.maxPartitionBytes", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if sys.argv[1] == "make":
        _table(spark).write.option("compression", sys.argv[3]).parquet(sys.argv[2])
    else:
        _encrypt(spark, *sys.argv[2:])
    spark.stop()


def _table(spark: SparkSession) -> object:
    columns = [F.expr(f"xxhash64(id, {n})").alias(f"l{n}") for n in range(4)]
    columns += [F.rand(n).alias(f"d{n}") for n in range(3)]
    columns += [F.expr(f"concat('word', pmod(xxhash64(id, {n}), 5000))").alias(f"s{n}") for n in range(3)]
    return spark.range(0, ROWS, 1, FILES).select(*columns)


def _encrypt(spark: SparkSession, table: str, codec: str, target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        policy = policy_from_text(
            "version: 1\nkey_service: {type: local, path: keys}\ndata_key_bits: 128\nfooter: {key: footer}\n"
            "untagged: plaintext\nrun_state: state\ntags: {pii: {key: pii}}\n",
            where="policy.yaml",
            base=folder,
        )
        for key in ("footer", "pii"):
            open_key_service(policy.key_service).create(key)
        sparkcrypt.configure(spark, policy)
        bean = spark._jvm.java.lang.management.ManagementFactory.getOperatingSystemMXBean()
        method = spark._jvm.java.lang.Class.forName("com.sun.management.OperatingSystemMXBean").getMethod(
            "getProcessCpuTime", spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Class, 0)
        )
        nothing = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0)
        frame = spark.read.parquet(table)
        tagged = frame.select(
            *(F.col(name).alias(name, metadata={"tags": ["pii"]} if name in TAGGED else {}) for name in frame.columns)
        )
        for _ in range(ROUNDS):
            wall, cpu = time.perf_counter(), method.invoke(bean, nothing)
            tagged.write.option("compression", codec).parquet(target)
            print(time.perf_counter() - wall, (method.invoke(bean, nothing) - cpu) / 1e9, flush=True)
            _check(next(Path(target).glob("part-*.parquet")))
            shutil.rmtree(target)


def _check(file: Path) -> None:
    """See that the contender did its work.

    Raises:
        SystemExit: the file is not encrypted.
    """
    if inspect_file(file).footer != "encrypted":
        raise SystemExit(f"{file} is not encrypted, so its figure would mean nothing")


if __name__ == "__main__":
    main()
