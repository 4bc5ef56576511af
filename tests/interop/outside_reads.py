"""A JVM without Spark that reads Parquet files for tests: one for many class paths, each as a program has it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from sparkcrypt.spark.setup.options import site_file
from tests.services.installed import java_home, spark_home
from tests.services.quick_java import QUICK

FOLDER = Path(__file__).parent / "java"
HADOOP = (
    "hadoop-client-*.jar",
    "jackson-[acd]*.jar",
    "slf4j-api-*.jar",
    "commons-*.jar",
    "avro-1.*.jar",
    "jts-core-*.jar",
)
"""What every program that uses Hadoop and parquet-java has; nothing of Spark and of Scala."""


OF_HIVE = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("net", "util"))
"""Options of Java that Hive's own start scripts give."""


class RefusedReadError(Exception):
    """The message, with those of its causes, of what a read ended with."""


class OutsideReads(AbstractContextManager["OutsideReads"]):
    """The program, compiled; it runs until the block ends.

    Args:
        folder: for its classes, and what it prints as it runs.
        readers: the name of their source.
        libraries: jars with what they use.
    """

    def __init__(self, folder: Path, readers: str, libraries: Iterable[Path]) -> None:
        shared = [jar for name in HADOOP for jar in sorted((spark_home() / "jars").glob(name))]
        classpath = ":".join(map(str, [folder, *libraries, *shared]))
        files = [FOLDER / f"{name}.java" for name in ("OutsideReads", readers)]
        self.errors = folder / "errors"
        bin_folder = java_home() / "bin"
        subprocess.run([bin_folder / "javac", "-nowarn", "-cp", classpath, "-d", folder, *files], check=True)
        command: list[str | Path] = [
            bin_folder / "java",
            *QUICK,
            *OF_HIVE,
            "-Xmx512m",
            "-cp",
            classpath,
            "OutsideReads",
        ]
        with self.errors.open("w") as errors:
            self._running = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
            )

    def __exit__(self, *_: object) -> None:
        """End the JVM in an orderly way, as it writes its last access events."""
        self._running.communicate()

    def run(self, *words: object) -> str:
        """Carry out a command.

        Raises:
            RefusedReadError: it was refused.
        """
        assert self._running.stdin is not None and self._running.stdout is not None
        self._running.stdin.write("\t".join(map(str, words)) + "\n")
        self._running.stdin.flush()
        outcome, _, said = self._running.stdout.readline().rstrip("\n").partition("\t")
        assert outcome, self.errors.read_text()[-3000:]
        if outcome == "refused":
            raise RefusedReadError(said)
        return said

    def program(self, *classpath: Path) -> Program:
        """Return a program with the jar and folders on its class path."""
        name = f"{len(classpath)}-{os.urandom(4).hex()}"
        self.run("loader", name, *classpath)
        return Program(self, name)


class Program:
    """A class path, loaded anew.

    Args:
        reads: the JVM.
        name: of the class path there.
    """

    def __init__(self, reads: OutsideReads, name: str) -> None:
        self._reads = reads
        self._name = name

    def add_jars(self, *paths: Path) -> None:
        """Add folders and jars as a session does (ADD JAR)."""
        self._reads.run("jars", self._name, *paths)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Call ``Sparkcrypt.configure``.

        Raises:
            RefusedReadError: it was refused.
        """
        self._reads.run("configure", self._name, *_words(settings))

    def read(self, reader: str, file: Path, columns: str, properties: Mapping[str, str] | None = None) -> str:
        """Return the rows that a reader finds in a file.

        Args:
            reader: the Java class.
            file: what it reads.
            columns: what it reads of it, as the class has it.
            properties: entries of the configuration.

        Raises:
            RefusedReadError: it was refused.
        """
        return self._reads.run(reader, self._name, file, columns, *_words(properties or {}))


def _words(properties: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in properties.items()]


def write_site(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write the site file with settings into a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sparkcrypt-site.xml").write_text(site_file(settings))
    return folder
