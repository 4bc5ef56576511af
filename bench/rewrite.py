"""Encryption of 6 of the 10 columns of a table of about 1 GB: page by page, and by every other tool for it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.harness import Cost, Report, forked, in_memory, process, spawned, with_target
from sparkcrypt.files.parquet import DataKey, FileEncryption, rewrite_file

SOURCE = Path(__file__).parent / "java" / "io" / "sparkcrypt" / "RewriterRun.java"
SPARK = Path(__file__).parent / "spark_write.py"
COLUMNS = ("l0", "l1", "d0", "d1", "s0", "s1")
ROUNDS = 5
CPU_RATIO = {"zstd": 20, "snappy": 15}
"""The bar by codec: so many times less CPU than Spark's read and encrypted write."""


def run() -> Report:
    """Measure all contenders on the same files in memory, snappy and zstd."""
    report = Report("rewrite", "encrypt 6 of 10 columns of 8,000,000 rows, files in memory")
    with in_memory() as folder:
        for codec in ("snappy", "zstd"):
            _measure(report, folder, codec)
    return report


def _measure(report: Report, folder: Path, codec: str) -> None:
    table = folder / codec
    process([sys.executable, str(SPARK), "make", str(table), codec])
    files = sorted(map(str, table.glob("part-*.parquet")))
    megabytes = sum(os.path.getsize(file) for file in files) / 1e6  # noqa: PTH202
    report.facts[codec] = {"files": len(files), "megabytes": round(megabytes)}
    copied, ours = [], []
    for _ in range(ROUNDS):  # in turns, so that other load of the machine affects both
        copied.append(with_target(folder, lambda target: spawned(["cp", *files, str(target)])))
        ours.append(with_target(folder, lambda target: forked(lambda: _rewrite(files, target))))
    spark = _rounds(process([sys.executable, str(SPARK), "encrypt", str(table), codec, str(folder / "out")])[1])
    java = _java(folder, files)
    alone = [_alone(folder, files) for _ in range(ROUNDS)]
    cpu = {"cp": [c.cpu for c in copied], "ours": [c.cpu for c in ours]}
    cpu |= {"Spark": [c for _, c in spark], "ParquetRewriter": [c for _, c in java]}
    for name, figures in cpu.items():
        report.add(f"{codec}: {name}, CPU", "s", figures)
    report.add(f"{codec}: ours, speed of one core", "MB/s", [megabytes / figure for figure in cpu["ours"]])
    ours_cpu, middle = statistics.median(cpu["ours"]), statistics.median
    spark_ratio = [figure / ours_cpu for figure in cpu["Spark"]]
    report.at_least(f"{codec}: Spark's CPU by ours", "x", spark_ratio, CPU_RATIO[codec])
    java_wall = middle([wall for wall, _ in java])
    report.at_least(
        f"{codec}: ParquetRewriter's time by ours, one thread each", "x", [java_wall / c.wall for c in ours], 3
    )
    for number, name in enumerate(("ours", "ParquetRewriter")):
        report.add(f"{codec}: {name} in a new process, start included", "s", [pair[number].wall for pair in alone])
    report.add(
        f"{codec}: ParquetRewriter's time by ours, each in a new process", "x", [j.wall / o.wall for o, j in alone]
    )
    report.at_least(
        f"{codec}: our speed by that of cp", "x", [middle([c.wall for c in copied]) / c.wall for c in ours], 0.5
    )
    report.at_most(f"{codec}: our peak memory", "MB", [c.peak for c in ours], 200)


def _rewrite(files: list[str], target: Path) -> None:
    for number, file in enumerate(files):
        encryption = FileEncryption(
            DataKey(os.urandom(16), b"footer"),
            columns={(column,): DataKey(os.urandom(16), column.encode()) for column in COLUMNS},
            aad_prefix=b"bench\0",
        )
        rewrite_file(file, target / f"{number}.parquet", encryption=encryption)


def _alone(folder: Path, files: list[str]) -> tuple[Cost, Cost]:
    """Rewrite the files once, by sparkcrypt and then by ParquetRewriter, each in a new process."""
    ours = [sys.executable, "-m", "bench.rewrite"]
    return (
        with_target(folder, lambda target: spawned([*ours, str(target), *files])),
        with_target(folder, lambda target: spawned([*_java_command(folder, 1), f"{target}/java-", *files])),
    )


def _java(folder: Path, files: list[str]) -> list[tuple[float, float]]:
    subprocess.run(["javac", "-cp", _spark_jars(), "-d", str(folder), str(SOURCE)], check=True)
    return _rounds(process([*_java_command(folder, ROUNDS + 2), f"{folder}/java-", *files])[1])


def _java_command(folder: Path, rounds: int) -> list[str]:
    main = ["io.sparkcrypt.RewriterRun", str(rounds), ",".join(COLUMNS)]
    return ["java", "-cp", f"{folder}:{_spark_jars()}", *main]


def _spark_jars() -> str:
    import pyspark

    return f"{Path(pyspark.__file__).parent}/jars/*"


def _rounds(printed: str) -> list[tuple[float, float]]:
    """Return wall and CPU seconds of each round, except the first two, in which a JVM warms up."""
    rounds = [tuple(map(float, line.split())) for line in printed.splitlines() if line.strip()]
    return [(wall, cpu) for wall, cpu in rounds[2:]]


if __name__ == "__main__":
    _rewrite(sys.argv[2:], Path(sys.argv[1]))
