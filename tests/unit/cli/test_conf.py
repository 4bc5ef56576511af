from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sparkcrypt
from sparkcrypt.policy.load import load_policy

from .conftest import run


def test_the_lines_hold_the_whole_policy(policy: Path) -> None:
    """Each line is a name and a value, and the policy survives being read as a Java properties file."""
    done = run("conf", "--policy", policy, "--jar", "/lib/s.jar", "--python", "/usr/bin/python3")
    assert "people who may read these columns read spark.eventLog.dir" in done.errors
    lines = done.output.splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    assert found["spark.jars"] == found["spark.driver.extraClassPath"] == "/lib/s.jar"
    assert found["spark.sparkcrypt.python"] == "/usr/bin/python3"
    canonical = found["spark.hadoop.parquet.sparkcrypt.policy"].replace("\\\\", "\\")
    assert canonical == load_policy(policy).canonical()
    assert all(name.startswith("spark.") for name in found)


def test_json_holds_the_same(policy: Path) -> None:
    """As JSON the values stand as they are, without a properties file's escapes."""
    found = run("conf", "--policy", policy, "--jar", "/lib/s.jar", "--json").document
    assert json.loads(found["spark.hadoop.parquet.sparkcrypt.policy"])["version"] == 1
    assert "spark.sparkcrypt.python" not in found


def test_a_jar_that_was_not_built_is_70(policy: Path, monkeypatch: object, tmp_path: Path) -> None:
    """Without a jar there is nothing to configure, and the message says how to get one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKCRYPT_JAR", str(tmp_path / "nosuch.jar"))
        done = run("conf", "--policy", policy)
    assert done.code == 70
    assert "make jar" in done.errors


def test_a_credential_of_a_server_of_many_users_is_named(policy: Path) -> None:
    """The lines stay as they are; stderr says what the server's environment must not have."""
    text = policy.read_text()
    service = "key_service: {type: vault, address: 'https://vault:8200', namespace: 'of/{principal}'}"
    policy.write_text(re.sub(r"key_service: .*", service, text))
    done = run("conf", "--policy", policy, "--jar", "/lib/s.jar")
    assert "without VAULT_TOKEN" in done.errors
    assert "spark.sparkcrypt.helper.environment" in done.errors
    assert all(line.startswith("spark.") for line in done.output.splitlines())
    policy.write_text(text)
    assert "VAULT_TOKEN" not in run("conf", "--policy", policy, "--jar", "/lib/s.jar").errors


def test_jobs_are_where_the_command_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder is the checkout's, or that of an installed wheel, where there are jobs for spark-submit."""
    folder = Path(run("jobs").output.strip())
    assert {"encrypt_table.py", "backfill.py", "rotate_keys.py"} <= {job.name for job in folder.glob("*.py")}
    assert run("jobs", "--json").document == {
        "folder": str(folder),
        "jobs": sorted(p.name for p in folder.glob("*.py")),
    }
    (tmp_path / "sparkcrypt").mkdir()
    monkeypatch.setattr(sparkcrypt, "__file__", str(tmp_path / "sparkcrypt" / "__init__.py"))
    lacking = run("jobs")
    assert (lacking.code, "install anew" in lacking.errors) == (78, True)
    (tmp_path / "sparkcrypt" / "jobs").mkdir()
    (tmp_path / "sparkcrypt" / "jobs" / "encrypt_table.py").touch()
    assert run("jobs").output.strip() == str(tmp_path / "sparkcrypt" / "jobs")
