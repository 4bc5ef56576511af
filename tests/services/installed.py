"""The JDK and Spark of this machine, and the environment of their processes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.services import ServiceUnavailableError
from tests.services.processes import LOCAL

ROOT = Path(__file__).resolve().parents[2]
OLDEST_JAVA = 17
_INHERITED_SPARK = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS")


@cache
def java_home() -> Path:
    """Return the home of a JDK 17 or later: JAVA_HOME, else that of ``javac`` on PATH.

    Raises:
        ServiceUnavailableError: there is none.
    """
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("javac")
    candidates = [Path(named)] if named else []
    candidates += [Path(on_path).resolve().parents[1]] if on_path else []
    for home in candidates:
        if _java_version(home / "bin" / "javac") >= OLDEST_JAVA:
            return home
    raise ServiceUnavailableError(
        f"there is no JDK {OLDEST_JAVA} or later, neither by JAVA_HOME nor as javac on PATH; "
        "tools/ensure_jdk.sh installs one where it can, else says how"
    )


@cache
def spark_home() -> Path:
    """Return the folder of the installed pyspark, which is a whole Spark.

    Raises:
        ServiceUnavailableError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceUnavailableError("pyspark is not installed; install sparkcrypt[spark]")
    return Path(spec.origin).parent


def spark_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment, with Spark set to listen on 127.0.0.1 only and to run this interpreter."""
    kept = {name: value for name, value in os.environ.items() if name not in _INHERITED_SPARK}
    home = java_home()
    return {
        **kept,
        "JAVA_HOME": str(home),
        "PATH": f"{home / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOCAL,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **(extra or {}),
    }


def _java_version(javac: Path) -> int:
    """Return a compiler's feature version (17 of ``javac 17.0.15``), 0 if it does not run."""
    if not javac.is_file():
        return 0
    answer = subprocess.run([javac, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r"javac (\d+)", answer.stdout + answer.stderr)
    return int(found[1]) if found else 0
