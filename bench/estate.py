"""CPU of the nightly commands over many tables: a pass that finds nothing to do, and the expiry of their old files.

The tables are partitioned, in an embedded metastore, whose work counts; each partition has one small file, and a pass
has encrypted all of them.  Figures are of commands as users give them, with all processes that come of them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from bench.harness import Cost, Report
from bench.rotation import write_rows
from bench.start import MAKE_ARCHIVE, environment, run_whole

TABLES, PARTITIONS = 200, 50
FILE_BYTES = 6_000
FIRST, BAR = "first pass", 60
_POLICY = """
version: 1
key_service: {type: local, path: keys}
run_state: state
data_key_bits: 128
footer: {key: footer}
audit: {key: audit}
untagged: plaintext
tags: {pii: {key: pii}}
"""


def run() -> Report:
    """Encrypt the tables of a database; run over them again, expire their old files, and run once more."""
    with tempfile.TemporaryDirectory() as folder:
        costs = measure(Path(folder), TABLES, PARTITIONS)
    report = Report(
        "estate", f"commands over {TABLES} tables of {PARTITIONS} partitions of one small file", least_runs=1
    )
    start = costs.pop("over no table").cpu
    report.add("a pass over no table, CPU", "s", [start])
    for what, cost in costs.items():
        if what == FIRST:
            report.add(f"{what}, CPU", "s", [cost.cpu])
        else:
            report.at_most(f"{what}, CPU", "s", [cost.cpu], BAR)
        report.add(f"{what}, CPU beyond a pass over no table", "s", [cost.cpu - start])
        report.add(f"{what}, on the clock", "s", [cost.wall])
        report.add(f"{what}, memory of the largest process", "MB", [cost.peak])
    return report


def measure(folder: Path, tables: int, partitions: int) -> dict[str, Cost]:
    """Make tables in a folder and run the commands; return what each cost."""
    env = environment()
    (folder / "policy.yaml").write_text(_POLICY)
    run_whole([sys.executable, "-c", MAKE_ARCHIVE], folder, env)
    keys = ["sparkcrypt", "keys", "create", "footer", "audit", "pii", "--policy", "policy.yaml"]
    run_whole(keys, folder, env)
    run_whole([sys.executable, "-m", "bench.estate", str(tables), str(partitions), str(folder)], folder, env)

    def command(*words: str, database: str = "estate") -> Cost:
        whole = ["sparkcrypt", "backfill", *words, "--database", database, "--policy", "policy.yaml"]
        return run_whole(whole, folder, env)[0]

    return {
        "over no table": command(database="nothing"),
        FIRST: command(),
        "a pass with nothing to do, before expiry": command(),
        "expire": command("expire", "--older-than", "0s"),
        "a pass with nothing to do, after expiry": command(),
    }


def main(tables: int, partitions: int, folder: Path) -> None:
    """Make the tables, with their tags, partitions and files in clear."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").enableHiveSupport().getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    plain = folder / "plain.parquet"
    write_rows(plain, FILE_BYTES)
    for database in ("estate", "nothing"):
        spark.sql(f"CREATE DATABASE {database}")
    columns = "id BIGINT, email STRING, phone STRING, amount DOUBLE, p INT"
    tags = ", ".join(f"'parquet.sparkcrypt.tags.{name}' 'pii'" for name in ("email", "phone"))
    added = " ".join(f"PARTITION (p = {number})" for number in range(partitions))
    for number in range(tables):
        place = folder / "data" / f"t{number}"
        for partition in range(partitions):
            (place / f"p={partition}").mkdir(parents=True)
            shutil.copyfile(plain, place / f"p={partition}" / "part-00000.parquet")
        options = f"USING parquet OPTIONS ({tags}) PARTITIONED BY (p) LOCATION '{place.as_uri()}'"
        spark.sql(f"CREATE TABLE estate.t{number} ({columns}) {options}")
        spark.sql(f"ALTER TABLE estate.t{number} ADD {added}")
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
