from __future__ import annotations

import json
from pathlib import Path

from sparkcrypt.policy.load import load_policy

from .conftest import run


def test_the_lines_hold_the_whole_policy(policy: Path) -> None:
    """Each line is a name and a value, and the policy survives being read as a Java properties file."""
    lines = run("conf", "--policy", policy, "--jar", "/lib/s.jar", "--python", "/usr/bin/python3").output.splitlines()
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
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKCRYPT_JAR", str(tmp_path / "nosuch.jar"))
        done = run("conf", "--policy", policy)
    assert done.code == 70
    assert "make jar" in done.errors
