"""What Spark's JVMs start and run faster with in tests, which start hundreds: hardly one runs for long."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.services.cache import cache_folder, locked
from tests.services.installed import OLDEST_JAVA, java_home, spark_home

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=160m")
"""The first compiler alone, and a collector without threads: what a short process gains from.

With that compiler alone a JVM reserves 48 MiB for code, which some thirty tests of Spark fill: from then on it sweeps
and compiles again without end.
"""
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
_LOCAL_FILES = Path(__file__).with_name("NioLocalFileSystem.java")
_CORE_SITE = f"""<configuration>
  <property><name>fs.file.impl</name><value>{_LOCAL_FILES.stem}</value></property>
</configuration>
"""


def quick_java(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Spark's JVMs start quickly, and start no process for a file's mode or owner.

    Their classes come from an archive (JEP 350), which is made once for each place of Spark and version of Java, by
    running a small job.  A JVM with another class path does not use it.

    Args:
        environment: in which Spark can be started.
    """
    flags = " ".join(QUICK)
    quick = {
        **environment,
        "SPARK_LAUNCHER_OPTS": flags,
        "SPARK_DAEMON_JAVA_OPTS": flags,
        "SPARK_SUBMIT_OPTS": flags,
        "SPARK_DIST_CLASSPATH": str(local_files_jar()),
    }
    archive = _archive(quick)
    if archive is not None:
        quick["SPARK_SUBMIT_OPTS"] = f"{flags} -XX:SharedArchiveFile={archive} {_SILENT}"
    return quick


def local_files_jar() -> Path:
    """Return a jar of the local file system that starts no processes, with the file by which Hadoop takes it."""
    folder, jars = cache_folder() / "classes", spark_home() / "jars"
    about = (_LOCAL_FILES.read_bytes(), _CORE_SITE, jars)
    jar = folder / (f"local-files-{hashlib.sha256(repr(about).encode()).hexdigest()[:24]}.jar")
    with locked(folder / "lock"):
        if not jar.exists():
            with tempfile.TemporaryDirectory() as compiled:
                options = ["--release", str(OLDEST_JAVA), "-cp", f"{jars}/*", "-d", compiled]
                subprocess.run([java_home() / "bin" / "javac", *options, _LOCAL_FILES], check=True)
                with zipfile.ZipFile(jar.with_suffix(".new"), "w") as made:
                    made.writestr("core-site.xml", _CORE_SITE)
                    for file in Path(compiled).iterdir():
                        made.write(file, file.name)
            jar.with_suffix(".new").rename(jar)
    return jar


def _archive(environment: Mapping[str, str]) -> Path | None:
    """Return the archive; None where it could not be made, since tests need no more than that they run."""
    folder, jars = cache_folder() / "classes", spark_home() / "jars"
    about = (java_home().resolve(), jars, jars.stat().st_mtime_ns, environment["SPARK_DIST_CLASSPATH"])
    archive = folder / (hashlib.sha256(repr(about).encode()).hexdigest()[:24] + ".jsa")
    with locked(folder / "lock"):
        if not archive.exists():
            made = archive.with_suffix(".new")
            made.unlink(missing_ok=True)
            if _make(made, environment) and made.exists():
                made.rename(archive)
    return archive if archive.exists() else None


def _make(archive: Path, environment: Mapping[str, str]) -> bool:
    """Run the job that leaves an archive; False where it did not end in time, so that what is there may be a part."""
    options = f"{environment['SPARK_SUBMIT_OPTS']} -XX:ArchiveClassesAtExit={archive} {_SILENT}"
    sys.stderr.write("Archiving Spark's classes, so that tests start sooner\n")
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                [sys.executable, "-c", _PROGRAM, f"{folder}/rows"],
                env={**environment, "SPARK_SUBMIT_OPTS": options},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return True
