"""A JDK with which Spark's JVMs start and run faster in tests, which start hundreds: hardly one runs for long."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from sparkcrypt.spark.setup.class_archive import OFF, archive_options, archive_program, jars_path
from tests.services.cache import cache_folder, locked
from tests.services.installed import OLDEST_JAVA, ROOT, java_home, spark_environment, spark_home

QUICK = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=160m",
    "-XX:MetaspaceSize=256m",
    "-XX:NewRatio=1",
    "-Dderby.language.statementCacheSize=2000",
)
"""The first compiler alone, and a collector without threads, which seldom runs: what a short process gains from.

A metastore has more statements than the hundred that Derby keeps compiled.
With that compiler alone a JVM reserves 48 MiB for code, which some thirty tests of Spark fill: from then on it sweeps
and compiles again without end.
"""
_JAVA = """#!/usr/bin/env bash
# Runs java with the options of tests/services/quick_java.py. Where Spark's jars are on the class path they come first,
# as they must for the archive of their classes to fit; what was before them, such as a folder of settings, comes last.
options=({options})
for ((i = 1; i < $#; i++)); do
    if [[ ${{!i}} == -cp ]]; then
        next=$((i + 1))
        others=":${{!next}}:"
        if [[ $others == *":"{jars}":"* ]]; then
            others=${{others/":"{jars}":"/:}}
            others=${{others#:}}
            others=${{others%:}}
            set -- "${{@:1:i}}" {first}:{files}"${{others:+:$others}}" "${{@:i+2}}"
            options+=({archive})
        fi
        break
    fi
done
exec {java} "${{options[@]}}" "$@"
"""
_MAKE = """
import sys
from pathlib import Path
from sparkcrypt.spark.setup.class_archive import run_program
run_program(*map(Path, sys.argv[1:]))
"""
_SECONDS = 300
_LOCAL_FILES = Path(__file__).with_name("NioLocalFileSystem.java")
_CORE_SITE = f"""<configuration>
  <property><name>fs.file.impl</name><value>{_LOCAL_FILES.stem}</value></property>
</configuration>
"""


def quick_java(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose JVMs are quick ones: drivers, executors, servers.  Commands need no archive there.

    Args:
        environment: in which Spark can be started.
    """
    return {**environment, "JAVA_HOME": str(quick_home()), OFF: "1"}


@cache
def quick_home() -> Path:
    """Return the home of a JDK that is this machine's, but for the options of its ``java``.

    Spark's classes come from an archive (JEP 350) that is made as those of commands are, once for each place of Spark
    and version of Java.  Its local file system starts no process for a file's mode or owner.
    """
    jdk, jars = (java_home() / "bin" / "javac").resolve().parents[1], spark_home() / "jars"
    about = (jdk, jars, jars.stat().st_mtime_ns, _LOCAL_FILES.read_bytes(), _CORE_SITE, _JAVA, archive_program(), QUICK)
    folder = cache_folder() / "java" / hashlib.sha256(repr(about).encode()).hexdigest()[:24]
    with locked(folder.with_suffix(".lock")):
        if not (folder / ".complete").exists():
            _make_home(folder, jdk)
    return folder


def _make_home(folder: Path, jdk: Path) -> None:
    """Make the folder of such a JDK; it runs without an archive until one could be made."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / "bin"):
        for entry in (jdk / place.relative_to(folder)).iterdir():
            if entry.name not in ("bin", "java"):
                (place / entry.name).unlink(missing_ok=True)
                (place / entry.name).symlink_to(entry)
    _make_local_files(folder / "local-files.jar")
    archive = folder / "spark.jsa"
    _make_archive(jdk, archive)
    _write_java(folder, jdk, archive_options(archive) if archive.exists() else ())
    if archive.exists():
        (folder / ".complete").touch()


def _write_java(folder: Path, jdk: Path, archive: tuple[str, ...]) -> None:
    java = folder / "bin" / "java"
    text = _JAVA.format(
        options=" ".join(QUICK),
        jars=shlex.quote(f"{spark_home() / 'jars'}/*"),
        first=shlex.quote(jars_path(spark_home())),
        files=shlex.quote(str(folder / "local-files.jar")),
        archive=shlex.join(archive),
        java=shlex.quote(str(jdk / "bin" / "java")),
    )
    java.write_text(text)
    java.chmod(0o755)


def _make_local_files(jar: Path) -> None:
    """Make a jar of the local file system that starts no processes, with the file by which Hadoop takes it."""
    with tempfile.TemporaryDirectory() as compiled, zipfile.ZipFile(jar, "w") as made:
        options = ["--release", str(OLDEST_JAVA), "-cp", f"{spark_home() / 'jars'}/*", "-d", compiled]
        subprocess.run([java_home() / "bin" / "javac", *options, _LOCAL_FILES], check=True)
        made.writestr("core-site.xml", _CORE_SITE)
        for file in Path(compiled).iterdir():
            made.write(file, file.name)


def _make_archive(jdk: Path, archive: Path) -> None:
    """Make the archive; none where the job failed or did not end in time, since what is there may be a part."""
    environment = {**spark_environment(), "JAVA_HOME": str(jdk), "PYTHONPATH": str(ROOT)}
    sys.stderr.write("Archiving Spark's classes, so that tests start sooner\n")
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder, suppress(subprocess.SubprocessError):
        subprocess.run(
            [sys.executable, "-c", _MAKE, spark_home(), folder],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        for made in Path(folder).glob("*.jsa"):
            made.replace(archive)
