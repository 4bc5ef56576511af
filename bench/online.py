"""The cost of encryption in Spark's writes and reads: the same rows, plain and encrypted in turns, in one JVM."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Report, in_memory, process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, FILES = 4_000_000, 2
WARM_UP, ROUNDS, READS = 8, 25, 3
"""Each round reads several times, since a read takes a quarter of a write's time and must be measured as well."""
TAGGED = ("l0", "l1", "d0", "d1", "s0", "s1")
PUBLISHED = {"write": 5.7, "read": 3.7}
EXPECTED = {"write": 3, "read": 2}


def run() -> Report:
    """Measure in a Spark process, and compare the figures with those published for another system."""
    report = Report("online", f"{len(TAGGED)} of 10 columns encrypted by Spark, {ROWS:,} rows, files in memory, snappy")
    with in_memory() as folder:
        printed = process([sys.executable, "-m", "bench.online", str(folder)])[1]
    rounds = [line.split() for line in printed.splitlines() if line.startswith("round ")]
    sizes = next(line.split()[1:] for line in printed.splitlines() if line.startswith("bytes "))
    report.facts = {
        "bytes": {"in clear": int(sizes[0]), "encrypted": int(sizes[1])},
        "warm-up rounds": WARM_UP,
        "published overhead in %": PUBLISHED,
    }
    for what in ("write", "read"):
        pairs = [(float(line[2]), float(line[3])) for line in rounds if line[1] == what][WARM_UP:]
        report.add(f"{what} in clear, CPU of the JVM", "s", [plain for plain, _ in pairs])
        report.add(f"{what} encrypted, CPU of the JVM", "s", [encrypted for _, encrypted in pairs])
        overhead = [(encrypted / plain - 1) * 100 for plain, encrypted in pairs]
        report.at_most(f"{what}: CPU that encryption adds", "%", overhead, EXPECTED[what])
    return report


def main(folder: Path) -> None:
    """Write and read the rows in turns; print the JVM's CPU seconds of each round, plain and encrypted."""
    import sparkcrypt
    from bench.spark_write import check, jvm_clock, policy_in, session, table, tagged

    spark = session()
    clock = jvm_clock(spark)
    rows = table(spark, ROWS, FILES).cache()
    rows.count()
    rows.createGlobalTempView("rows")
    encrypting = spark.newSession()
    with tempfile.TemporaryDirectory() as keys:
        sparkcrypt.configure(encrypting, policy_in(keys))
        spark.sparkContext._jsc.hadoopConfiguration().unset("parquet.crypto.factory.class")  # only that one encrypts
        # Other metadata on the same columns, so that Spark's plans are the same, including a projection.
        frames = (
            tagged(rows, TAGGED, {"noted": True}),
            tagged(encrypting.table("global_temp.rows"), TAGGED),
        )
        places = (str(folder / "plain"), str(folder / "encrypted"))

        def cpu(work: Callable[[], None]) -> float:
            begin = clock()
            work()
            return clock() - begin

        for number in range(WARM_UP + ROUNDS):
            turns = (0, 1) if number % 2 else (1, 0)
            for place in places:
                shutil.rmtree(place, ignore_errors=True)
            wrote = {turn: cpu(partial(frames[turn].write.parquet, places[turn])) for turn in turns}
            read = {turn: cpu(partial(_read, (spark, encrypting)[turn], places[turn])) for turn in turns}
            for what, found in (("write", wrote), ("read", read)):
                print("round", what, found[0], found[1], flush=True)
        check(places[1])
        sizes = [sum(file.stat().st_size for file in Path(place).glob("part-*")) for place in places]
        print("bytes", *sizes)
    spark.stop()


def _read(spark: SparkSession, place: str) -> None:
    for _ in range(READS):
        spark.read.parquet(place).write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
