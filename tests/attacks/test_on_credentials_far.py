"""The same attacks where executors are other processes, and on Spark Connect, with a token in their environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.setup.options import launch_conf
from tests.attacks.listener import Listener, listening
from tests.conftest import FreshJvm, or_skip
from tests.services.cluster import Cluster, start_cluster
from tests.services.connect import start_connect_server
from tests.services.quick_java import quick_java
from tests.spark.support import SECRET, assert_encrypted, data_files, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]
TOKEN = "hvs.CANARY-token-of-the-executors"  # of the test alone
LATER = """
import json, sys, time
from pyspark.sql import SparkSession, functions as F
import sparkcrypt
folder, evil = sys.argv[1:3]
"""
ATTACKS = f"""
def refused(action):
    try:
        action()
    except Exception as error:
        return "differs from what this session is under" in str(error)
    return False
email = F.lit("{SECRET}").alias("email", metadata={{"tags": ["pii"]}})
rows = spark.range(4).select("id", email)
rows.write.parquet(folder + "/out")
print("read", spark.read.parquet(folder + "/out").filter("email LIKE 'CANARY%'").count())
text = evil.replace("'", "\\\\'")
options = f"OPTIONS ('parquet.sparkcrypt.policy' = '{{text}}', 'parquet.sparkcrypt.tags.email' = 'pii')"
spark.sql(f"CREATE TABLE attacked (id BIGINT, email STRING) USING parquet {{options}} LOCATION '{{folder}}/attacked'")
print("insert", refused(lambda: spark.sql("INSERT INTO attacked VALUES (1, '{SECRET}')")))
print("option", refused(lambda: rows.write.option("parquet.sparkcrypt.policy", evil).parquet(folder + "/option")))
service = json.dumps(json.loads(evil)["key_service"])
by_service = rows.write.option("parquet.sparkcrypt.key_service", service)
print("service", refused(lambda: by_service.parquet(folder + "/service")))
read = spark.read.schema("id BIGINT, email STRING").option("parquet.sparkcrypt.policy", evil)
print("select", refused(lambda: read.parquet(folder + "/out").collect()))
spark.sql("SET parquet.sparkcrypt.policy=" + evil)
print("set", refused(lambda: rows.write.parquet(folder + "/set")))
spark.sql("DROP TABLE attacked")
spark.stop()
"""
SAID = ["read 4", "insert True", "option True", "service True", "select True", "set True"]


@pytest.fixture
def attacker() -> Iterator[Listener]:
    """The attacker's address."""
    with listening() as listener:
        yield listener


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose executors hold a Vault token."""
    running = or_skip(start_cluster, tmp_path / "cluster", env=quick_java({"VAULT_TOKEN": TOKEN}))
    yield running
    running.stop()


def evil_text(folder: Path, attacker: Listener) -> str:
    """The policy of a folder, but on a Vault at the attacker's address."""
    service = KeyServiceConfig.from_dict({"type": "vault", "address": attacker.address, "max_retries": 0})
    return replace(make_policy(folder), key_service=service).canonical()


@pytest.mark.cluster
@pytest.mark.services
def test_executors_of_a_cluster(
    workers: Cluster, attacker: Listener, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path
) -> None:
    """Executors that start after ``configure`` learn its policy, and none sends its token where a table says."""
    script = (
        LATER
        + """
builder = SparkSession.builder.master(sys.argv[3])
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "600m", "spark.sql.warehouse.dir": folder + "/warehouse",
        "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.executorIdleTimeout": "1s"}
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sparkcrypt.configure(spark, sparkcrypt.load_policy(folder + "/p/policy.yaml"))
spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
executors = lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
for _ in range(120):
    if executors() == 0:
        break
    time.sleep(0.5)
assert executors() == 0, "the executors of the probe are still there"
"""
        + ATTACKS
    )
    evil = evil_text(tmp_path / "p", attacker)
    environment = {"SPARKCRYPT_JAR": str(private_jar), "VAULT_TOKEN": TOKEN}
    done = fresh_jvm(script, tmp_path, evil, workers.master_url, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == SAID
    assert (attacker.requests, attacker.tokens) == (0, [])
    assert_encrypted(tmp_path / "out", make_policy(tmp_path / "p"), {"email": "pii"}, visible=())
    assert [data_files(tmp_path / name) for name in ("attacked", "option", "service", "set")] == [[]] * 4


@pytest.mark.services
def test_connect(
    attacker: Listener, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch of a Connect server names the policy; a client's, a table's and an option's other one is refused."""
    policy = make_policy(tmp_path / "p")
    evil = evil_text(tmp_path / "p", attacker)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    conf = {**launch_conf(policy, str(private_jar), sys.executable), "spark.sql.parquet.compression.codec": "none"}
    (tmp_path / "q").mkdir()
    text = (tmp_path / "p" / "policy.yaml").read_text().replace("path: keys/", f"path: {tmp_path / 'p' / 'keys'}")
    (tmp_path / "q" / "policy.yaml").write_text(text.replace("fin: {key: fin}", "fin: {key: other}"))
    server = start_connect_server(tmp_path, conf)
    script = (
        LATER
        + """
spark = SparkSession.builder.remote(sys.argv[3]).getOrCreate()
try:
    sparkcrypt.configure(spark, sparkcrypt.load_policy(folder + "/q/policy.yaml"))
except sparkcrypt.errors.ConfigError as error:
    assert "launched with policy" in str(error) and "tags.fin" in str(error), error
else:
    raise AssertionError("another policy was taken")
sparkcrypt.configure(spark, sparkcrypt.load_policy(folder + "/p/policy.yaml"))
"""
        + ATTACKS
    )
    try:
        done = fresh_jvm(script, tmp_path, evil, server.url)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == SAID
    assert (attacker.requests, attacker.tokens) == (0, [])
    assert_encrypted(tmp_path / "out", policy, {"email": "pii"}, visible=())
    assert [data_files(tmp_path / name) for name in ("attacked", "option", "service", "set")] == [[]] * 4


@pytest.mark.services
def test_connect_server_without_a_policy(connect_url: str, fresh_jvm: FreshJvm, tmp_path: Path) -> None:
    """A client cannot bring a policy to a server that was launched with the jar alone; the message names the lines."""
    make_policy(tmp_path / "p")
    script = """
import sys
from pyspark.sql import SparkSession
import sparkcrypt
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
try:
    sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[2]))
except sparkcrypt.errors.ConfigError as error:
    print("launched without a policy" in str(error), "sparkcrypt conf" in str(error))
"""
    done = fresh_jvm(script, connect_url, tmp_path / "p" / "policy.yaml")
    assert done.stdout.split() == ["True", "True"], done.stderr[-3000:]
