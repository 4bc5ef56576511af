"""What tasks of the native engine need of Python: ``doctor`` finds what is missing, and runs say so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshJvm
from tests.services.installed import ROOT
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DOCTOR = "from sparkcrypt.cli.main import main; main()"
CHECK = "tasks of the native engine"
ABSENT = "raise ModuleNotFoundError(\"No module named 'pandas'\", name='pandas')\n"
OLD = "__version__ = '0.25.3'\n"


def library(folder: Path, text: str) -> str:
    """Return a folder for PYTHONPATH in whose pandas there is this text alone."""
    (folder / "pandas").mkdir(parents=True)
    (folder / "pandas" / "__init__.py").write_text(text)
    return str(folder)


def doctor(fresh_jvm: FreshJvm, policy: Path, jar: Path, *conf: str, python_path: str = "") -> tuple[int, Any]:
    """Return the exit code of ``sparkcrypt doctor`` and its check of the engine's tasks."""
    settings = ["spark.ui.enabled=false", f"spark.sql.warehouse.dir={(policy.parent / 'warehouse').as_uri()}", *conf]
    arguments = [argument for setting in settings for argument in ("--conf", setting)]
    environment = {"SPARKCRYPT_JAR": str(jar)}
    if python_path:
        environment["PYTHONPATH"] = os.pathsep.join((python_path, str(ROOT)))
    done = fresh_jvm(
        DOCTOR, "doctor", "--policy", policy, "--json", "--master", "local[2]", *arguments, env=environment
    )
    assert done.stdout, done.stderr[-3000:]
    checks = {check["check"]: check for check in json.loads(done.stdout)}
    return done.returncode, checks[CHECK]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy whose keys exist."""
    make_policy(tmp_path / "p")
    return tmp_path / "p" / "policy.yaml"


def test_driver_without_pandas(fresh_jvm: FreshJvm, private_jar: Path, policy: Path, tmp_path: Path) -> None:
    """Spark makes no frame of tasks on a driver without the pandas that it takes: the check fails and says so."""
    code, check = doctor(fresh_jvm, policy, private_jar, python_path=library(tmp_path / "lib", ABSENT))
    assert (code, check["ok"]) == (78, False), check
    assert "the driver" in check["detail"]
    assert "andas" in check["detail"]
    assert "pip install 'sparkcrypt[spark]'" in check["fix"]


def test_executors_with_an_old_pandas(fresh_jvm: FreshJvm, private_jar: Path, policy: Path, tmp_path: Path) -> None:
    """The driver has what it needs, the executors' Python does not: the check tells them apart."""
    path = library(tmp_path / "lib", OLD)
    code, check = doctor(fresh_jvm, policy, private_jar, f"spark.executorEnv.PYTHONPATH={path}")
    assert (code, check["ok"]) == (78, False), check
    assert "the executors" in check["detail"]
    assert "0.25.3" in check["detail"]
