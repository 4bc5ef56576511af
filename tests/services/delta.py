"""An environment with a Spark that Delta's jars fit, and those jars: Delta 4.4.0 has none for newer ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.maven import Jar, fetched_folder

SPARK = "4.1.1"
_PACKAGES = (f"pyspark=={SPARK}", "pyyaml", "click", "cryptography")
_INSTALL_SECONDS = 1800.0
_JARS = (
    Jar(
        "io.delta", "delta-spark_4.1_2.13", "4.4.0", "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"
    ),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)


@dataclass(frozen=True, slots=True)
class Delta:
    """An interpreter that has the Spark, and the jars."""

    python: Path
    jars: tuple[Path, ...]


def find_delta() -> Delta:
    """Return the environment, made once and kept in the cache.

    Raises:
        ServiceUnavailableError: packages or jars cannot be fetched.
    """
    folder = fetched_folder("delta-4.4.0", _JARS)
    environment = cache_folder() / f"venv-spark-{SPARK}"
    with locked(cache_folder() / f".venv-spark-{SPARK}.lock"):
        if not (environment / "ready").exists():
            _install(environment)
    return Delta(environment / "bin" / "python", tuple(folder / jar.file for jar in _JARS))


def _install(environment: Path) -> None:
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [str(environment / "bin" / "pip"), "install", "--quiet", *_PACKAGES],
    )
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceUnavailableError(f"an environment for Delta cannot be made: {error}") from error
        if done.returncode:
            raise ServiceUnavailableError(f"an environment for Delta cannot be made: {done.stderr.strip()[-500:]}")
    (environment / "ready").touch()
