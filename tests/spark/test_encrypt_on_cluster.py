"""The job on real services: a metastore process, a cluster of two workers with a helper each, and Vault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require_service
from tests.services import ServiceUnavailableError
from tests.services.cluster import start_cluster
from tests.services.installed import ROOT
from tests.services.metastore import Metastore
from tests.services.quick_java import EXECUTORS

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.services, pytest.mark.slow]

POLICY = """
version: 1
key_service: {type: vault, mount_point: transit}
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state/
tags:
  pii: {key: "cluster:pii"}
"""
MAKE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
spark.sql("CREATE DATABASE shop")
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


@pytest.fixture
def submit(java: dict[str, str], jar: Path, metastore: Metastore, vault: Any, tmp_path: Path) -> Iterator[Any]:
    """Runs a program on a cluster whose workers hold Vault's token, as a driver that holds it too."""
    log = tmp_path / "keys.log"
    credentials = {"VAULT_ADDR": vault.address, "VAULT_TOKEN": vault.root_token, "SPARKCRYPT_KEY_LOG": str(log)}
    try:
        cluster = start_cluster(tmp_path, env={**credentials, **EXECUTORS})
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    conf = tmp_path / "conf"
    conf.mkdir()
    settings = {
        **metastore.spark_conf(),
        "spark.master": cluster.master_url,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "600m",
    }
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    path = f"{Path(sys.executable).parent}{os.pathsep}{java['PATH']}"
    environment = {**java, **credentials, "PATH": path, "SPARK_CONF_DIR": str(conf), "PYTHONPATH": str(ROOT)}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr[-4000:]}"
        return done.stdout

    yield run
    cluster.stop()


@pytest.mark.timeout(900)
def test_job_on_two_workers_with_metastore_and_vault(submit: Any, metastore: Metastore, tmp_path: Path) -> None:
    """Both workers wrap keys in Vault, the table's files are encrypted, and it reads back equal."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    (tmp_path / "make.py").write_text(MAKE)
    (tmp_path / "read.py").write_text(READ)
    submit(sys.executable, "make.py")
    for key in ("footer", "cluster:pii"):
        submit("sparkcrypt", "keys", "create", key, "--policy", str(policy))
    submit("sparkcrypt", "tags", "set", "shop.orders", "email", "pii", "--policy", str(policy))
    report = tmp_path / "report.json"
    job = ("--table", "shop.orders", "--policy", str(policy), "--report", str(report))
    submit("spark-submit", str(ROOT / "jobs" / "encrypt_table.py"), *job)
    outcome = json.loads(report.read_text())
    assert (outcome["outcome"], outcome["rows"], outcome["verified"]) == ("done", 4000, True)
    assert json.loads(submit(sys.executable, "read.py", str(policy)).strip().splitlines()[-1]) == [4000, 4000, 4400]
    staged = list((metastore.warehouse / "shop.db" / ".sparkcrypt").rglob("part-*"))
    assert staged
    assert not [file for file in staged if b"canary-" in file.read_bytes()]
    calls = [json.loads(line) for line in (tmp_path / "keys.log").read_text().splitlines()]
    for op, who in (("unwrap", "rewrote files"), ("wrap", "wrote new ones")):
        processes = {call["pid"] for call in calls if call["op"] == op and call["key_id"] == "cluster:pii"}
        assert len(processes) >= 2, f"one process alone {who}; there are two workers"
