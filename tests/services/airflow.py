"""A real Airflow in an environment of its own, since it installs another pandas and a client-only pyspark.

The environment is created once, in the cache; ``python -m tests.services.airflow`` creates it before the tests, whose
time limit the first installation would exceed.  Each Airflow has its own home: configuration, database, logs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.installed import ROOT, spark_environment, spark_home
from tests.services.quick_java import quick_java

CONSTRAINTS = ROOT / "tests" / "airflow" / "constraints.txt"
REQUIREMENTS = ("apache-airflow", "apache-airflow-providers-apache-spark", "pytest", "pytest-timeout")
PYTHONS = ("python3.11", "python3.12", "python3.13")
"""The provider runs on 3.11 and later; newer versions are untested."""
DATABASE = "airflow.db"
INSTALL_SECONDS = 1500.0
COMMAND_SECONDS = 120.0
_OF_THIS_ENVIRONMENT = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONWARNINGS")


@dataclass(frozen=True, slots=True)
class Airflow:
    """An Airflow with its own database and no server: its command line runs DAGs.

    Attributes:
        environment: the folder of its virtual environment.
        home: configuration, database and logs.
        env: the complete environment of its processes, with this project's Spark.
    """

    environment: Path
    home: Path
    env: Mapping[str, str]

    @property
    def python(self) -> Path:
        """The interpreter that can import Airflow."""
        return self.environment / "bin" / "python"

    @property
    def dags(self) -> Path:
        """The folder of DAGs."""
        return self.home / "dags"

    def command(self, *arguments: str) -> list[str]:
        """Return a command line of Airflow's."""
        return [str(self.environment / "bin" / "airflow"), *arguments]

    def run(self, *arguments: str, timeout: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run one of Airflow's commands and return its result, also of a failure."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.home,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def start_airflow(home: Path, env: Mapping[str, str] | None = None) -> Airflow:
    """Return an Airflow with a new database.

    Args:
        home: the folder for everything that it writes.
        env: additions to the environment of its processes, including connections and variables.

    Raises:
        ServiceUnavailableError: Airflow cannot be installed here.
        ServiceFailedError: its database cannot be created.
    """
    environment = installed_airflow()
    (home / "dags").mkdir(parents=True)
    quick = quick_java(spark_environment())
    kept = {name: value for name, value in quick.items() if name not in _OF_THIS_ENVIRONMENT}
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PATH": os.pathsep.join([str(spark_home() / "bin"), kept["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    airflow = Airflow(environment, home, {**kept, **settings, **(env or {})})
    shutil.copy(_empty_database(airflow), home / DATABASE)
    return airflow


def _empty_database(airflow: Airflow) -> Path:
    """Return a database as `airflow db migrate` makes it, which takes most of a start; it is made once."""
    database = airflow.environment / DATABASE
    with locked(airflow.environment / ".database.lock"):
        if not database.exists():
            made = airflow.run("db", "migrate")
            if made.returncode != 0:
                raise ServiceFailedError(f"airflow db migrate failed:\n{made.stdout[-1500:]}\n{made.stderr[-1500:]}")
            shutil.copy(airflow.home / DATABASE, database.with_suffix(".new"))
            database.with_suffix(".new").rename(database)
    return database


def installed_airflow() -> Path:
    """Return the folder of an environment with Airflow; concurrent callers create it once.

    Raises:
        ServiceUnavailableError: there is no suitable Python, or the packages cannot be fetched.
    """
    python = _python()
    digest = hashlib.sha256(f"{python}\0{CONSTRAINTS.read_text()}".encode()).hexdigest()[:16]
    folder = cache_folder() / f"airflow-{digest}"
    complete = folder / ".complete"
    with locked(cache_folder() / f".airflow-{digest}.lock"):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _install(python, folder)
            complete.touch()
    return folder


def _install(python: str, folder: Path) -> None:
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    try:
        for command in ([python, "-m", "venv", str(folder)], [*pip, "-c", str(CONSTRAINTS), *REQUIREMENTS]):
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        raise ServiceUnavailableError(
            f"no Airflow: it cannot be installed with {python}; it needs the package registry:\n{error.stderr[-2000:]}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailableError(f"no Airflow: its installation took more than {INSTALL_SECONDS:g} s") from error


def _python() -> str:
    """Return an interpreter for Airflow: this one if it is suitable."""
    if f"python3.{sys.version_info.minor}" in PYTHONS:
        return str(Path(sys.executable).resolve())
    for name in PYTHONS:
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", "import venv, ensurepip"], check=False).returncode == 0:
            return found
    raise ServiceUnavailableError(f"no Airflow: its provider for Spark runs on {', '.join(PYTHONS)}, and none is there")


if __name__ == "__main__":
    print(installed_airflow())
