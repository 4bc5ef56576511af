"""The Spark processes of ``orc``: they create its tables, encrypt one by reading and writing, and read one.

Usage: orc_child.py FOLDER make CODEC ROWS FILES | encrypt CODEC | make-small FILES | read-small FILES
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from bench.orc import KEYS, SPARK_ROUNDS
from bench.spark_write import jvm_clock, session, table
from sparkcrypt.files.orc import inspect_orc

ROWS_EACH = 100
"""The number of rows of a small file."""


def main(folder: Path, what: str, *arguments: str) -> None:
    """Do what the arguments say."""
    spark = session()
    if what == "make":
        codec, rows, files = arguments
        _write(spark, folder / codec, codec, int(rows), int(files))
    elif what == "encrypt":
        _encrypt(spark, folder, *arguments)
    elif what == "make-small":
        _make_small(spark, folder, *map(int, arguments))
    else:
        _read_small(spark, folder, *map(int, arguments))
    spark.stop()


def _write(spark: SparkSession, place: Path, codec: str, rows: int, files: int) -> None:
    table(spark, rows, files, "id").write.option("compression", codec).orc(str(place))


def _encrypt(spark: SparkSession, folder: Path, codec: str) -> None:
    """Read the rows and write them encrypted by tag; print elapsed and CPU seconds of each round."""
    sparkcrypt.configure(spark, sparkcrypt.load_policy(folder / "policy.yaml"))
    cpu_seconds = jvm_clock(spark)
    rows = spark.read.orc(str(folder / codec))
    tags = {name: {"tags": [KEYS[name]]} if name in KEYS else {} for name in rows.columns}
    tagged = rows.select(*(F.col(name).alias(name, metadata=told) for name, told in tags.items()))
    target = folder / "spark"
    for _ in range(SPARK_ROUNDS):
        wall, cpu = time.perf_counter(), cpu_seconds()
        tagged.write.option("compression", codec).orc(str(target))
        print("figures", time.perf_counter() - wall, cpu_seconds() - cpu, flush=True)
        _check(target)
        shutil.rmtree(target)


def _make_small(spark: SparkSession, folder: Path, files: int) -> None:
    """Create many small plaintext files, and encrypt them into another folder by a run."""
    policy = sparkcrypt.load_policy(folder / "policy.yaml")
    _write(spark, folder / "small", "zstd", files * ROWS_EACH, files)
    done = sparkcrypt.encrypt_table(
        spark, None, policy, path=(folder / "small").as_uri(), output=(folder / "small-new").as_uri()
    )
    if (done.outcome, done.files_rewritten, done.units[0]["engine"]) != ("done", files, "native"):
        raise SystemExit(f"the run ended otherwise: {done.to_dict()}")


def _read_small(spark: SparkSession, folder: Path, files: int) -> None:
    sparkcrypt.configure(spark, sparkcrypt.load_policy(folder / "policy.yaml"))
    read = spark.read.orc(str(folder / "small-new")).agg(F.count("l0"), F.count("s0"))
    if tuple(read.collect()[0]) != (files * ROWS_EACH, files * ROWS_EACH):
        raise SystemExit("a reader did not get all values, so its calls would mean nothing")


def _check(folder: Path) -> None:
    """Check that Spark encrypted the files.

    Raises:
        SystemExit: a file is not encrypted as its tags say.
    """
    for file in folder.glob("part-*.orc"):
        found = inspect_orc(file).columns
        if {path[0]: column.key_id for path, column in found.items() if column.encrypted} != KEYS:
            raise SystemExit(f"{file} is not encrypted by its tags, so its figure would mean nothing")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
