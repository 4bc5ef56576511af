"""Files and bytes per second of a master key's rotation over a whole table, as a run does it.

Reading every footer, staging, proof, swaps, journal and audit are included.  Each file has its own KEKs before, as if
written by a separate writer.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report, process
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.parquet import DataKey, FileEncryption, folders_synced_once, rewrite_file
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.policy.model import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FILES = 300
"""The bar: small files that a core rotates in a second."""
MASTERS = ("footer", "pii")
TAGGED = ("email", "phone")
SMALL = {"units": 200, "files": 100, "length": 18_000}
LARGE = {"units": 4, "files": 2, "length": 128_000_000}


def run() -> Report:
    """Rotate the key of 20,000 small files and of a few large ones, and count a reader's calls afterwards."""
    small, large = _child("small"), _child("large")
    report = Report(
        "rotation",
        f"rotate a key of {small['files']:,} files of {small['bytes'] // small['files'] // 1000} KB in "
        f"{SMALL['units']} units, and of {large['files']} files of {large['bytes'] // large['files'] // 1_000_000} MB",
        least_runs=1,
    )
    report.at_least(
        "small files, a second of CPU of all processes", "files/s", [small["files"] / small["cpu"]], SMALL_FILES
    )
    report.add("small files, a second on the clock, two cores", "files/s", [small["files"] / small["seconds"]])
    report.add("large files, a second of CPU of all processes", "MB/s", [large["bytes"] / 1e6 / large["cpu"]])
    report.add("large files, a second on the clock, two cores", "MB/s", [large["bytes"] / 1e6 / large["seconds"]])
    report.at_most("calls of a reader's JVM, small files", "calls", [small["calls"]], len(MASTERS))
    report.facts = {
        "small": small,
        "large": large,
        "CPU seconds": "of driver, JVM and workers, from the call to its report",
    }
    return report


def _child(what: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.rotation", what, folder]
        found: dict[str, Any] = json.loads(process(command, env={"PYSPARK_PYTHON": sys.executable})[1].splitlines()[-1])
        log = Path(folder) / "calls.log"
        process([sys.executable, "-m", "bench.rotation", "read", folder], env={KEY_LOG: str(log)})
        unwrapped = [line for line in map(json.loads, log.read_text().splitlines()) if line["key_id"] in MASTERS]
        return {**found, "calls": len(unwrapped)}


def main(what: str, folder: Path) -> None:
    """Measure one thing and print it, or read the rotated files."""
    import sparkcrypt
    from bench.spark_write import policy_in, session

    spark, policy = session(), policy_in(str(folder))
    sparkcrypt.configure(spark, policy)
    if what == "read":
        paths = json.loads((folder / "files.json").read_text())
        if not spark.read.parquet(*paths).where("email IS NOT NULL").count():
            raise SystemExit("a reader found no rows")
    else:
        print(json.dumps(_rotate(spark, policy, folder, **(SMALL if what == "small" else LARGE))))
    spark.stop()


def _rotate(spark: SparkSession, policy: Policy, folder: Path, **amount: int) -> dict[str, Any]:
    from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
    from sparkcrypt.runs.rewrite.options import RunOptions

    size = _make_table(spark, policy, folder, **amount)
    files = amount["units"] * amount["files"]
    began, used = time.perf_counter(), cpu_seconds()
    options = RotationOptions(run=RunOptions(parallelism=4))
    done = rotate_key(spark, policy, "pii", tables=["t"], options=options)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - used
    (table,) = done.tables
    if (done.outcome, table.files_rewritten) != ("done", files):
        raise SystemExit(f"the rotation ended otherwise: {done.to_dict()}")
    spark.sql("REFRESH TABLE t")
    (folder / "files.json").write_text(json.dumps(spark.table("t").inputFiles()[: amount["units"]]))
    return {"seconds": seconds, "cpu": cpu, "files": files, "bytes": size, "key_calls": dict(table.key_calls)}


def _make_table(spark: SparkSession, policy: Policy, folder: Path, *, units: int, files: int, length: int) -> int:
    """Create a table whose files have their own keys; return their total size in bytes."""
    from sparkcrypt.runs.table.target import catalog_target
    from sparkcrypt.spark.tables.catalog import Catalog
    from sparkcrypt.spark.tables.tagging import set_tags

    place = folder / "t"
    columns = "id BIGINT, email STRING, phone STRING, amount DOUBLE"
    spark.sql(f"CREATE TABLE t ({columns}, p INT) USING parquet PARTITIONED BY (p) LOCATION '{place.as_uri()}'")
    set_tags(spark, "t", {column: ["pii"] for column in TAGGED}, policy)
    uuid = catalog_target(spark, Catalog(spark).table("t"), policy, None).with_identity(policy).uuid or ""
    plain, size = folder / "plain.parquet", 0
    write_rows(plain, length)
    service = open_key_service(policy.key_service)
    with folders_synced_once():
        for unit in range(units):
            (place / f"p={unit}").mkdir(parents=True)
            for number in range(files):
                name, maker = f"part-{number:05d}.parquet", DataKeyMaker(service, data_key_bits=128)
                encryption = FileEncryption(
                    DataKey(*maker.make("footer", is_footer_key=True)),
                    columns={(column,): DataKey(*maker.make("pii", is_footer_key=False)) for column in TAGGED},
                    aad_prefix=FileIdentity(uuid, f"p={unit}", name).to_aad_prefix(),
                )
                rewrite_file(plain, place / f"p={unit}" / name, encryption=encryption)
                size += (place / f"p={unit}" / name).stat().st_size
    spark.sql("MSCK REPAIR TABLE t")
    return size


def write_rows(path: Path, size: int) -> None:
    """Write a plaintext file of about the given bytes, with texts that do not compress."""
    rows = max(1, size // 120)
    texts = [secrets.token_hex(24) for _ in range(min(rows, 10_000))]
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "email": pa.array([texts[number % len(texts)] for number in range(rows)]),
            "phone": pa.array([texts[-1 - number % len(texts)] for number in range(rows)]),
            "amount": pa.array([float(number) for number in range(rows)]),
        }
    )
    pq.write_table(table, path, use_dictionary=False, compression="none")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all of its descendants, including those that have ended."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, and its parent's figures include it
            continue
        number = int(stat.parent.name)
        parents[number], seconds[number] = int(told[1]), sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")
    found, own = 0.0, {os.getpid()}
    while own:
        found += sum(seconds.get(number, 0.0) for number in own)
        own = {number for number, parent in parents.items() if parent in own}
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
