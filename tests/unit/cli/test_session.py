from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.options import Launch
from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import is_local
from sparkcrypt.spark.setup import command_session
from sparkcrypt.spark.setup.command_session import require_pyspark, spark_session

from .conftest import run


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that has no pyspark."""
    monkeypatch.setattr(command_session, "find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize(
    "arguments",
    [("plan", "--table", "d.t"), ("encrypt", "--table", "d.t"), ("verify", "--table", "d.t")],
    ids=" ".join,
)
def test_without_pyspark_the_extra_is_named(policy: Path, arguments: tuple[str, ...]) -> None:
    """A command that needs Spark says how to get it, and ends with 78."""
    done = run(*arguments, "--policy", policy)
    assert done.code == 78
    assert "pip install 'sparkcrypt[spark]'" in done.errors


def test_the_pyspark_of_spark_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pyspark: None) -> None:
    """A cluster's own Spark serves, by SPARK_HOME, where pyspark is not installed."""
    (tmp_path / "python" / "pyspark").mkdir(parents=True)
    (tmp_path / "python" / "lib").mkdir()
    bridge = tmp_path / "python" / "lib" / "py4j-0.10.9-src.zip"
    bridge.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    require_pyspark()
    assert sys.path == [str(tmp_path / "python"), str(bridge), "/elsewhere"]


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Connect client has no catalog of its own, so the environment that asks for it is refused by name."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with pytest.raises(ConfigError, match="SPARK_REMOTE"), spark_session("test"):
        pass


def test_a_workplace_starts_no_spark_that_is_not_needed(policy: Path, no_pyspark: None) -> None:
    """Local policies, schemas and reports need no session."""
    with Workplace("test", Launch()) as workplace:
        assert workplace.policy(str(policy)).footer_key == "footer"
        assert workplace.policy(policy.as_uri()).footer_key == "footer"
        workplace.write(str(policy.parent / "report.json"), "{}")
        workplace.write((policy.parent / "report.json").as_uri(), "[]")
    assert json.loads((policy.parent / "report.json").read_text()) == []
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy.yaml", "report.json"]


@pytest.mark.parametrize(
    ("uri", "local"),
    [("a/b", True), ("/a", True), ("file:/a", True), ("file:///a", True), ("hdfs://n/a", False), ("s3a://b/a", False)],
)
def test_which_names_need_spark(uri: str, local: bool) -> None:
    """Only a URI of another file system does."""
    assert is_local(uri) is local


def test_a_report_needs_a_folder(tmp_path: Path) -> None:
    """A local report is checked before the work; a remote one is its file system's affair."""
    check_writable(None)
    check_writable("hdfs://n/report.json")
    check_writable(str(tmp_path / "report.json"))
    with pytest.raises(ConfigError, match="--report"):
        check_writable(str(tmp_path / "nosuch" / "report.json"))


def test_commands_are_told_without_pyspark() -> None:
    """The client, and what prints a configuration for a launch, run where nobody has installed Spark."""
    script = "import sys; sys.modules.update(pyspark=None, py4j=None); from sparkcrypt.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "conf", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--policy" in done.stdout
