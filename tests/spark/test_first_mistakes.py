"""What a command in a process of its own answers where its Spark has just started: the error alone, without any log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import FreshJvm
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Command = Callable[..., "subprocess.CompletedProcess[str]"]

PROGRAM = "from sparkcrypt.cli.main import main; main()"
MAKE_TABLE = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").enableHiveSupport().getOrCreate()
spark.sql("CREATE TABLE t (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p)")
spark.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
spark.stop()
"""
OTHER = """#!/usr/bin/env bash
PYTHONPATH={folder}:$PYTHONPATH exec {python} "$@"
"""
OTHER_VERSION = """
import collections, sys

names = "major minor micro releaselevel serial"
sys.version_info = collections.namedtuple("version_info", names)(3, 99, *sys.version_info[2:])
"""
"""An interpreter that imports this when it starts tells Spark another minor version than its own."""


@pytest.fixture
def command(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> Command:
    """A call that gives a command with its arguments and the policy, in a new process, on Spark's own local mode."""
    make_policy(tmp_path / "p")

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        policy = tmp_path / "p" / "policy.yaml"
        launch = ("--policy", policy, "--master", "local[2]", "--conf", "spark.ui.enabled=false")
        return fresh_jvm(PROGRAM, *arguments, *launch, env={"SPARKCRYPT_JAR": str(private_jar)})

    return call


def test_a_wrong_predicate_is_answered_in_one_line(command: Command, fresh_jvm: FreshJvm) -> None:
    """Spark logs an error of its parser with a stack of Java, and as its start does; none of this is seen."""
    made = fresh_jvm(MAKE_TABLE)
    assert made.returncode == 0, made.stderr[-3000:]
    for where in ("p >>= 1", "dya = 1"):
        done = command("plan", "--table", "t", "--where", where)
        assert (done.returncode, done.stdout) == (64, ""), done.stderr[-3000:]
        (line,) = done.stderr.splitlines()
        assert repr(where) in line and "p (int)" in line, line


def test_another_python_on_executors_is_answered_in_one_line(command: Command, tmp_path: Path) -> None:
    """Tasks end with a traceback of the worker, each several times; what is seen is which Python, and what to set."""
    (tmp_path / "raw").mkdir()
    pq.write_table(pa.table({"email": ["x"], "id": [1]}), tmp_path / "raw" / "part-0.parquet")
    field = {"name": "email", "type": "string", "confluent:tags": ["pii"]}
    avro = {"type": "record", "name": "r", "fields": [field, {"name": "id", "type": "long"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(avro))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER_VERSION)
    python = tmp_path / "python3.99"
    python.write_text(OTHER.format(folder=tmp_path / "site", python=sys.executable))
    python.chmod(0o755)
    broken = tmp_path / "broken-python"
    broken.write_text("#!/usr/bin/env bash\necho of another machine >&2\nexit 3\n")
    broken.chmod(0o755)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    told = {python: f"is 3.99, and that of the driver {ours}; ", broken: "does not start: of another machine; "}
    for interpreter, reason in told.items():
        done = command(
            *("encrypt", "--path", "raw", "--output", "out", "--avro-schema", "r.avsc"),
            *("--conf", f"spark.pyspark.python={interpreter}"),
        )
        assert done.returncode == 78, done.stderr[-3000:]
        lines = [line for line in done.stderr.splitlines() if "Z info " not in line]
        *plan, error = lines[lines.index(next(line for line in lines if line.startswith("id "))) :]
        assert len(plan) == 1 and f"error: the Python of an executor {reason}" in error, done.stderr[-3000:]
        assert "--conf spark.pyspark.python=PATH, to a Python " in error
        assert not list((tmp_path / "out").glob("*.parquet"))
        assert [file.name for file in (tmp_path / "raw").iterdir()] == ["part-0.parquet"]
