"""Options with which a JVM starts in a third of the time: tests start hundreds, and hardly one runs for long."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.services.cache import cache_folder, locked
from tests.services.installed import java_home, spark_home

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The first compiler alone, and a collector without threads: what a short process gains from."""
EXECUTORS = {"JDK_JAVA_OPTIONS": " ".join(QUICK)}
"""For the environment of a cluster's workers, and so of its executors, which note it in their logs."""
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(10).selectExpr("id", "string(id) AS text").write.parquet(sys.argv[1])
spark.read.parquet(sys.argv[1]).groupBy("text").count().collect()
"""
_SECONDS = 300


def quick_java(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Spark's JVMs start quickly.

    Their classes come from an archive (JEP 350), which is made once for each place of Spark and version of Java, by
    running a small job.  A JVM with another class path does not use it.

    Args:
        environment: in which Spark can be started.
    """
    flags = " ".join(QUICK)
    quick = {**environment, "SPARK_LAUNCHER_OPTS": flags, "SPARK_DAEMON_JAVA_OPTS": flags, "SPARK_SUBMIT_OPTS": flags}
    archive = _archive(quick)
    if archive is not None:
        quick["SPARK_SUBMIT_OPTS"] = f"{flags} -XX:SharedArchiveFile={archive} {_SILENT}"
    return quick


def _archive(environment: Mapping[str, str]) -> Path | None:
    """Return the archive; None where it could not be made, since tests need no more than that they run."""
    folder, jars = cache_folder() / "classes", spark_home() / "jars"
    about = (java_home().resolve(), jars, jars.stat().st_mtime_ns)
    archive = folder / (hashlib.sha256(repr(about).encode()).hexdigest()[:24] + ".jsa")
    with locked(folder / "lock"):
        if not archive.exists():
            made = archive.with_suffix(".new")
            made.unlink(missing_ok=True)
            _make(made, environment)
            if made.exists():
                made.rename(archive)
    return archive if archive.exists() else None


def _make(archive: Path, environment: Mapping[str, str]) -> None:
    options = f"{environment['SPARK_SUBMIT_OPTS']} -XX:ArchiveClassesAtExit={archive} {_SILENT}"
    sys.stderr.write("Archiving Spark's classes, so that tests start sooner\n")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, f"{folder}/rows"],
            env={**environment, "SPARK_SUBMIT_OPTS": options},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
