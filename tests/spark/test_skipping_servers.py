"""Data skipping on servers that nothing but lines of configuration put under the policy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkcrypt import names
from sparkcrypt.cli.main import cli
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import launch_conf
from tests.conftest import FreshJvm, or_skip
from tests.services.connect import start_connect_server
from tests.services.thrift import start_thrift_server
from tests.spark.support import data_files, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]
RULES = "  default.t: {require_encryption: true, tags: {email: pii}}\n"
MAKE = "CREATE TABLE t (id INT, email STRING) USING parquet"
FILL = "INSERT INTO t SELECT /*+ REPARTITION_BY_RANGE(4, id) */ CAST(id AS INT) id, concat('e', id) FROM range(400)"
ASK = ("EXPLAIN SELECT email FROM t WHERE id = 301", "SELECT concat('found ', email) FROM t WHERE id = 301")
SCRIPT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
for statement in sys.argv[2:]:
    for row in spark.sql(statement).collect():
        print(row[0])
"""


def launched(policy: Policy, jar: Path, folder: Path) -> dict[str, str]:
    """Return the lines of configuration of a server."""
    own = {names.SKIPPING: "true", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    return {**launch_conf(policy, str(jar)), **own}


def check_server(folder: Path, ask: Callable[..., str]) -> None:
    """Let a server make a table, index it, and ask the server for a row by its store and without."""
    ask(MAKE, FILL)
    table = folder / "warehouse" / "t"
    for file in data_files(table):
        past = file.stat().st_mtime - 60
        os.utime(file, (past, past))
    place = ("--path", str(table), "--policy", str(folder / "policy" / "policy.yaml"))
    done = CliRunner().invoke(cli, ["index", "create", *place, "--column", "id"])
    assert done.exit_code == 0, done.output
    served = ask("REFRESH TABLE t", *ASK)
    assert "Location: SkippingFileIndex" in served
    assert "found e301" in served
    first = data_files(table)[0]  # holds rows before those that are asked for
    content, times = first.read_bytes(), first.stat()
    first.write_bytes(bytes(len(content)))
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "found e301" in ask(*ASK)  # it is not opened
    assert "found e301" not in ask(f"SET {names.SKIPPING}=false", *ASK)
    first.write_bytes(content)
    whole = ask(f"SET {names.SKIPPING}=false", *ASK)
    assert "found e301" in whole
    assert "SkippingFileIndex" not in whole


def test_connect_server_skips(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Clients of a Connect server open the files that a store leaves, unless their session says otherwise."""
    policy = make_policy(tmp_path / "policy", tables=RULES, more="index: {location: indexes/}\n")
    conf = launched(policy, private_jar, tmp_path)
    (tmp_path / "server").mkdir()
    server = or_skip(start_connect_server, tmp_path / "server", conf)

    def ask(*statements: str) -> str:
        done = fresh_jvm(SCRIPT, server.url, *statements)
        return str(done.stdout + done.stderr)

    try:
        check_server(tmp_path, ask)
    finally:
        server.stop()


def test_thrift_server_skips(java: dict[str, str], private_jar: Path, tmp_path: Path) -> None:
    """The same for users of a Thrift server."""
    policy = make_policy(tmp_path / "policy", tables=RULES, more="index: {location: indexes/}\n")
    conf = launched(policy, private_jar, tmp_path)
    server = or_skip(start_thrift_server, tmp_path / "server", conf)

    def ask(*statements: str) -> str:
        done = server.ask(*statements)
        return done.stdout + done.stderr

    try:
        check_server(tmp_path, ask)
    finally:
        server.stop()
