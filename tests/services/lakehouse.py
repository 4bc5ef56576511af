"""Environments with the Spark that a table format's jars require; none support the Spark of the tests."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.maven import Jar, fetched_folder

_PACKAGES = ("pyyaml", "click", "cryptography", "setuptools")
_INSTALL_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Format:
    """A release of a table format: its jars, and the newest Spark that they support."""

    name: str
    spark: str
    jars: tuple[Jar, ...]


DELTA = Format(
    "delta-4.4.0",
    "4.1.1",
    (
        Jar(
            "io.delta",
            "delta-spark_4.1_2.13",
            "4.4.0",
            "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
        ),
        Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    ),
)
ICEBERG = Format(
    "iceberg-1.12.0",
    "4.1.1",
    (
        Jar(
            "org.apache.iceberg",
            "iceberg-spark-runtime-4.1_2.13",
            "1.12.0",
            "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Lakehouse:
    """An interpreter with the Spark, and the jars."""

    python: Path
    jars: tuple[Path, ...]


def find_lakehouse(wanted: Format) -> Lakehouse:
    """Return a format's environment, created once for each Spark and kept in the cache.

    Raises:
        ServiceUnavailableError: packages or jars cannot be fetched.
    """
    folder = fetched_folder(wanted.name, wanted.jars)
    environment = cache_folder() / f"venv-spark-{wanted.spark}"
    with locked(cache_folder() / f".venv-spark-{wanted.spark}.lock"):
        if not (environment / "ready").exists():
            _install(environment, wanted)
    return Lakehouse(environment / "bin" / "python", tuple(folder / jar.file for jar in wanted.jars))


def _install(environment: Path, wanted: Format) -> None:
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [str(environment / "bin" / "pip"), "install", "--quiet", f"pyspark=={wanted.spark}", *_PACKAGES],
    )
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceUnavailableError(f"an environment for {wanted.name} cannot be made: {error}") from error
        if done.returncode:
            said = done.stderr.strip()[-500:]
            raise ServiceUnavailableError(f"an environment for {wanted.name} cannot be made: {said}")
    (environment / "ready").touch()
