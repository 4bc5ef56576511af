"""The job on real services: a metastore process, a cluster of two workers with a helper each, and Vault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import load_policy
from sparkcrypt.policy.model import Policy
from tests.cluster.key_canary import Keys, Processes, find_forms, read_files
from tests.conftest import or_skip
from tests.services.cluster import start_cluster
from tests.services.installed import ROOT
from tests.services.metastore import Metastore
from tests.services.quick_java import quick_java

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.services, pytest.mark.slow]

POLICY = """
version: 1
key_service: {type: vault, mount_point: transit}
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state/
access_log: {location: access-log/}
tags:
  pii: {key: "cluster:pii"}
"""
MAKE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
spark.sql("CREATE DATABASE IF NOT EXISTS shop")
spark.sql("CREATE TABLE shop.orders (id BIGINT, email STRING) PARTITIONED BY (p INT) STORED AS PARQUET")
rows = spark.range(0, 4000, 1, 4).selectExpr("id", "concat('canary-', id) AS email", "cast(id % 4 AS INT) AS p")
rows.write.insertInto("shop.orders")
"""
READ = """
import json, sys
from pyspark.sql import SparkSession
import sparkcrypt
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
frame = sparkcrypt.read_table(spark, "shop.orders", sparkcrypt.load_policy(sys.argv[1]))
found = [frame.count(), frame.where("email = concat('canary-', id)").count()]
rows = spark.range(4000, 4400, 1, 4).selectExpr("id", "concat('canary-', id) AS email", "cast(id % 4 AS INT) AS p")
rows.write.insertInto("shop.orders")
print(json.dumps([*found, spark.table("shop.orders").count()]))
"""


@dataclass(frozen=True)
class Site:
    """Where programs run, and in which environment."""

    folder: Path
    environment: dict[str, str]
    said: list[tuple[str, bytes]] = field(default_factory=list)
    """What each program printed."""

    def __call__(self, *command: str) -> str:
        """Run a program to its end and return what it printed."""
        with self.started(*command) as process:
            output, errors = process.communicate()
        assert process.returncode == 0, f"{command}\n{output}\n{errors[-4000:]}"
        self.said.append((" ".join(command), f"{output}{errors}".encode()))
        return output

    def started(self, *command: str) -> subprocess.Popen[str]:
        """Start a program."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def submit(java: dict[str, str], jar: Path, metastore: Metastore, vault: Any, tmp_path: Path) -> Iterator[Site]:
    """Runs a program on a cluster whose workers hold Vault's token, as a driver that holds it too."""
    log = tmp_path / "keys.log"
    credentials = {"VAULT_ADDR": vault.address, "VAULT_TOKEN": vault.root_token, "SPARKCRYPT_KEY_LOG": str(log)}
    cluster = or_skip(start_cluster, tmp_path, env=quick_java(credentials))
    conf, events = tmp_path / "conf", tmp_path / "events"
    conf.mkdir()
    events.mkdir()
    settings = {
        **metastore.spark_conf(),
        "spark.master": cluster.master_url,
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",  # what Spark's pages show
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "600m",
    }
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    path = f"{Path(sys.executable).parent}{os.pathsep}{java['PATH']}"
    environment = {**java, **credentials, "PATH": path, "SPARK_CONF_DIR": str(conf), "PYTHONPATH": str(ROOT)}

    yield Site(tmp_path, environment)
    cluster.stop()


def tagged(submit: Site, table: str) -> Path:
    """Make a table and tag its column; return the policy's file."""
    policy = submit.folder / "policy.yaml"
    policy.write_text(POLICY)
    (submit.folder / "make.py").write_text(MAKE.replace("shop.orders", table))
    (submit.folder / "read.py").write_text(READ.replace("shop.orders", table))
    submit(sys.executable, "make.py")
    for key in ("footer", "cluster:pii"):
        submit("sparkcrypt", "keys", "create", key, "--policy", str(policy))
    submit("sparkcrypt", "tags", "set", table, "email", "pii", "--policy", str(policy))
    return policy


def assert_readers_recorded(site: Site, policy: Path) -> None:
    """Assert that both workers left events of the one read that there was, and nobody of the run that encrypted."""
    accesses = []
    for day in (site.folder / "access-log").iterdir():
        asked = ("--column", "shop.orders.email", "--on", day.name.removeprefix("day="), "--policy", str(policy))
        accesses += json.loads(site("sparkcrypt", "audit", "access", *asked, "--json"))["accesses"]
    assert {(access["outcome"], access["key"]) for access in accesses} == {("opened", "cluster:pii")}
    assert len({access["process"] for access in accesses}) == 2
    assert len({access["application"] for access in accesses}) == 1


@pytest.mark.timeout(900)
def test_job_on_two_workers_with_metastore_and_vault(
    submit: Site, metastore: Metastore, vault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both workers wrap keys in Vault, the table's files are encrypted, it reads back equal, and no key gets out."""
    policy = tagged(submit, "shop.orders")
    report = tmp_path / "report.json"
    job = ("--table", "shop.orders", "--policy", str(policy), "--report", str(report))
    with Processes(tmp_path) as processes:
        submit("spark-submit", str(ROOT / "jobs" / "encrypt_table.py"), *job)
        read = submit(sys.executable, "read.py", str(policy))
    outcome = json.loads(report.read_text())
    assert (outcome["outcome"], outcome["rows"], outcome["verified"]) == ("done", 4000, True)
    assert json.loads(read.strip().splitlines()[-1]) == [4000, 4000, 4400]
    staged = list((metastore.warehouse / "shop.db" / ".sparkcrypt").rglob("part-*"))
    assert staged
    assert not [file for file in staged if b"canary-" in file.read_bytes()]
    calls = [json.loads(line) for line in (tmp_path / "keys.log").read_text().splitlines()]
    for op, who in (("unwrap", "rewrote files"), ("wrap", "wrote new ones")):
        pids = {call["pid"] for call in calls if call["op"] == op and call["key_id"] == "cluster:pii"}
        assert len(pids) >= 2, f"one process alone {who}; there are two workers"
    assert_readers_recorded(submit, policy)
    monkeypatch.setenv("VAULT_ADDR", vault.address)
    monkeypatch.setenv("VAULT_TOKEN", vault.root_token)
    assert_no_key_got_out(submit, load_policy(policy), processes, staged)


def assert_no_key_got_out(site: Site, policy: Policy, processes: Processes, files: list[Path]) -> None:
    """Assert that logs, events, records, outputs, command lines and environments hold neither a key nor the token."""
    keys = Keys(policy)
    for file in files:
        keys.take_from_file(file)
    keys.take_from_state(site.folder / "state")
    assert len(keys.found) > len(files)
    lines, environments = processes.texts("cmdline"), processes.texts("environ")
    for needed in (b"CoarseGrainedExecutorBackend", b"sparkcrypt.jar", b"encrypt_table.py"):
        assert any(needed in line for _, line in lines), f"no process was seen with {needed!r}"
    texts = [*read_files(site.folder), *site.said]
    assert any("/events/" in place and b"SparkListenerJobEnd" in text for place, text in texts)
    assert any("/worker-" in place and place.endswith("stderr") and text for place, text in texts)
    assert find_forms(keys.found, [*texts, *lines, *environments]) == []
    token = site.environment["VAULT_TOKEN"].encode()
    assert [place for place, text in [*texts, *lines] if token in text] == []
    planted = next(iter(keys.found))
    assert find_forms({planted}, [("here", f"key {planted.hex()}".encode())]) == ["here: hex"]


def executors(folder: Path) -> list[int]:
    """Return the processes of executors that work below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and folder in (process / "cwd").readlink().parents:
                found.append(int(process.name))
    return found


def kinds(state: Path) -> list[str]:
    """Return the kinds of all records in the journals below a folder."""
    found = []
    for file in sorted((state / "log").rglob("*")):
        with suppress(OSError, ValueError):
            found += [json.loads(line)["kind"] for line in file.read_text().splitlines() if '"kind"' in line]
    return found


@pytest.mark.timeout(900)
def test_killed_executors_lose_nothing(submit: Site, metastore: Metastore) -> None:
    """Both executors are killed while units are staged, and again when they are: the run goes on with new ones."""
    table, state = "shop.killed", submit.folder / "state"
    policy, report = tagged(submit, table), submit.folder / "report.json"
    job = (str(ROOT / "jobs" / "backfill.py"), "--table", table, "--policy", str(policy), "--parallelism", "1")
    left, killed = [("unit_listed", 1), ("unit_staged", 1)], []
    with submit.started("spark-submit", *job, "--report", str(report)) as process:
        while process.poll() is None:
            alive = executors(submit.folder)
            if left and len(alive) == 2 and kinds(state).count(left[0][0]) >= left[0][1]:
                for pid in alive:
                    os.kill(pid, signal.SIGKILL)
                killed.append(left.pop(0))
            time.sleep(0.02)
        output, errors = process.communicate()
    assert process.returncode == 0, f"{output}\n{errors[-4000:]}"
    assert not left, f"the run ended before its executors were killed after {left}, but only after {killed}"
    outcome = json.loads(report.read_text())
    assert (outcome["outcome"], outcome["totals"]["files_left"]) == ("done", 0)
    assert json.loads(submit(sys.executable, "read.py", str(policy)).strip().splitlines()[-1]) == [4000, 4000, 4400]
