"""The helper in a real Spark JVM: started once, restarted once, given up when it hangs, gone when the JVM is gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, TypeAlias

import pytest

from tests.faults.conftest import Faults
from tests.services.processes import has_ended

pytestmark = pytest.mark.spark
Scenario: TypeAlias = Callable[..., dict[str, Any]]

PRELUDE = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from tests.faults.session import *
jar, key_service, policy, folder = sys.argv[1:5]
KEY = bytearray(range(16))
"""


@pytest.fixture
def scenario(fresh_jvm: Callable[..., CompletedProcess[str]], jar: Path, faults: Faults, tmp_path: Path) -> Scenario:
    """Runs a script in a fresh JVM and returns what it told, with its stderr under ``stderr``."""

    def run(script: str, **environment: str) -> dict[str, Any]:
        finished = fresh_jvm(
            PRELUDE + script,
            jar,
            faults.key_service,
            faults.policy(),
            tmp_path,
            env={"PYTHONPATH": faults.environment["PYTHONPATH"], **environment},
        )
        assert finished.returncode == 0, finished.stderr[-4000:]
        return {**json.loads(finished.stdout.splitlines()[-1]), "stderr": finished.stderr}

    return run


def test_helper_killed_during_a_request_is_started_once_more(scenario: Scenario, faults: Faults) -> None:
    """A request that its helper did not survive succeeds on a new helper; one that kills both is an error."""
    told = scenario("""
client = kms(start(jar), key_service)
wrapped = client.wrapKey(KEY, "a")
again = client.unwrapKey(wrapped, "dies-once")
error = failure(client.unwrapKey, wrapped, "dies")
after = client.unwrapKey(wrapped, "a")
tell(again=list(again), error=error, after=list(after))
""")
    assert told["again"] == told["after"] == list(range(16))
    assert "BridgeError" in told["error"]
    assert "ended twice" in told["error"]
    assert faults.count("unwrap dies-once") == 2
    assert faults.count("unwrap dies") == 2 + 2
    assert len(faults.helpers()) == 4


def test_hanging_helper_is_killed_after_the_deadline(scenario: Scenario) -> None:
    """A helper that answers neither the request nor a ping is killed, the error says so, and the next request works."""
    told = scenario("""
spark = start(jar, spark__sparkcrypt__helper__deadline__seconds="5")
client = kms(spark, key_service)
wrapped = client.wrapKey(KEY, "a")
before = children_with(jvm_pid(spark), "sparkcrypt.jar")
started = time.monotonic()
error = failure(client.unwrapKey, wrapped, "stops")
seconds = time.monotonic() - started
left = [pid for pid in before if pid in children_with(jvm_pid(spark), "sparkcrypt.jar")]
tell(error=error, seconds=seconds, before=before, left=left, after=list(client.unwrapKey(wrapped, "a")))
""")
    assert "hung and was killed" in told["error"]
    assert 10 <= told["seconds"] < 40
    assert (len(told["before"]), told["left"]) == (1, [])
    assert told["after"] == list(range(16))


def test_slow_key_service_fails_its_own_request_alone(scenario: Scenario, faults: Faults) -> None:
    """A request beyond its deadline on a helper that answers a ping fails as the key service's; the helper stays."""
    told = scenario("""
client = kms(start(jar, spark__sparkcrypt__helper__deadline__seconds="2"), key_service)
wrapped = client.wrapKey(KEY, "a")
error = failure(client.unwrapKey, wrapped, "sleeps")
tell(error=error, after=list(client.unwrapKey(wrapped, "a")))
""")
    assert "KeyServiceUnavailableError" in told["error"]
    assert "within 2 s" in told["error"]
    assert told["after"] == list(range(16))
    assert len(faults.helpers()) == 1


def test_eight_threads_share_a_helper_without_waiting_for_a_slow_one(scenario: Scenario, faults: Faults) -> None:
    """While one unwrap takes 3 s, seven other threads are served by the same helper."""
    told = scenario("""
client = kms(start(jar, spark__master="local[8]"), key_service)
wrapped = client.wrapKey(KEY, "a")
def unwrap(key_id):
    started = time.monotonic()
    client.unwrapKey(wrapped, key_id)
    return time.monotonic() - started
with ThreadPoolExecutor(8) as pool:
    slow = pool.submit(unwrap, "slow")
    time.sleep(0.2)
    others = list(pool.map(unwrap, [f"k{n}" for n in range(7)]))
    tell(others=others, slow_was_done=slow.done(), slow=slow.result())
""")
    assert max(told["others"]) < 2
    assert told["slow"] >= 3
    assert len(faults.helpers()) == 1


def test_errors_of_the_key_service_reach_java_as_what_they_are(scenario: Scenario) -> None:
    """A denial is parquet-mr's KeyAccessDeniedException, the rest ParquetCryptoRuntimeException, with our type."""
    told = scenario("""
client = kms(start(jar), key_service)
wrapped = client.wrapKey(KEY, "a")
tell(denied=failure(client.unwrapKey, wrapped, "denied"), down=failure(client.unwrapKey, wrapped, "down"),
     leaks=failure(client.unwrapKey, wrapped, "leaks"), prints=list(client.unwrapKey(wrapped, "prints")),
     no_service=failure(kms, start(jar), "{}") or failure(kms(start(jar), "{}").wrapKey, KEY, "a"))
""")
    package = "org.apache.parquet.crypto."
    assert told["denied"].startswith(package + "KeyAccessDeniedException: KeyAccessDeniedError: ")
    assert told["down"].startswith(package + "ParquetCryptoRuntimeException: KeyServiceUnavailableError: ")
    assert "BridgeError: unwrap failed with RuntimeError" in told["leaks"]
    assert "CANARY" not in told["leaks"] + told["stderr"]
    assert told["prints"] == list(range(16))
    assert "ConfigError" in told["no_service"]


@pytest.mark.parametrize(
    ("interpreter", "said"),
    [
        (None, "cannot be started"),
        ("exec /bin/false", "ended twice"),
        ("echo 'Python 2.7.18'; cat >/dev/null", "ended twice"),
        (f'exec {sys.executable} -I -S "$@"', "faulty"),
    ],
    ids=["does not exist", "ends at once", "speaks something else", "lacks the key service's library"],
)
def test_write_fails_when_the_helper_cannot_serve(
    scenario: Scenario, tmp_path: Path, interpreter: str | None, said: str
) -> None:
    """A tagged write without a working interpreter fails, names what to set, and leaves no data file."""
    python = tmp_path / "chosen-python"
    if interpreter is not None:
        python.write_text(f"#!/bin/sh\n{interpreter}\n")
        python.chmod(0o755)
    told = scenario("""
from pyspark.sql import functions as F
spark = start(jar, spark__sparkcrypt__python=folder + "/chosen-python")
configure(spark, policy)
rows = spark.range(10).select(F.col("id").alias("ssn", metadata={"tags": ["pii"]}))
tell(error=failure(rows.write.parquet, folder + "/out"))
""")
    text = told["error"] + told["stderr"]
    assert said in text
    if said != "faulty":
        assert "spark.sparkcrypt.python" in text
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_library_of_the_key_service_missing_is_named(scenario: Scenario, tmp_path: Path) -> None:
    """On an interpreter without hvac a Vault key service says which library to install where."""
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    told = scenario("""
service = json.dumps({"type": "vault", "address": "http://127.0.0.1:1"})
tell(error=failure(kms(start(jar, spark__sparkcrypt__python=folder + "/bare-python"), service).wrapKey, KEY, "a"))
""")
    assert "hvac" in told["error"]


@pytest.mark.parametrize("end", ["normally", "by kill -9"])
def test_no_helper_outlives_its_jvm(scenario: Scenario, faults: Faults, end: str) -> None:
    """However the JVM ends, with a request in flight too, its helper ends."""
    told = scenario(f"""
import signal, threading
spark = start(jar)
client = kms(spark, key_service)
wrapped = client.wrapKey(KEY, "a")
threading.Thread(target=failure, args=(client.unwrapKey, wrapped, "sleeps"), daemon=True).start()
time.sleep(0.5)
helpers, jvm = children_with(jvm_pid(spark), "sparkcrypt.jar"), jvm_pid(spark)
tell(helpers=helpers)
if {end == "normally"}:
    spark.stop()
else:
    os.kill(jvm, signal.SIGKILL)
os._exit(0)
""")
    assert len(told["helpers"]) == 1
    assert has_ended(told["helpers"][0], seconds=10)
    assert faults.count("unwrap sleeps") == 1, "a JVM that ends started another helper"


def test_session_never_chooses_what_is_executed(scenario: Scenario, tmp_path: Path) -> None:
    """SET of any spelling of the interpreter, in a session or its Hadoop configuration, starts nothing."""
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path / 'executed'}\n")
    evil.chmod(0o755)
    told = scenario("""
from pyspark.sql import functions as F
spark = start(jar)
configure(spark, policy)
for name in ("spark.sparkcrypt.python", "sparkcrypt.python", "spark.hadoop.sparkcrypt.python"):
    spark.conf.set(name, folder + "/evil")
    spark._jsc.hadoopConfiguration().set(name, folder + "/evil")
rows = spark.range(10).select(F.col("id").alias("ssn", metadata={"tags": ["pii"]}))
rows.write.option("spark.sparkcrypt.python", folder + "/evil").parquet(folder + "/out")
tell(rows=spark.read.parquet(folder + "/out").count())
""")
    assert told["rows"] == 10
    assert not (tmp_path / "executed").exists()


def test_refusal_is_told_though_the_class_loader_was_closed(scenario: Scenario) -> None:
    """Every class of the jar is there once the first is used: a refusal does not end as NoClassDefFoundError."""
    told = scenario("""
spark = start(jar)
machine = spark._jvm
urls = spark.sparkContext._gateway.new_array(machine.java.net.URL, 1)
urls[0] = machine.java.io.File(jar).toURI().toURL()
loader = machine.java.net.URLClassLoader(urls, machine.java.lang.ClassLoader.getSystemClassLoader())
factory = loader.loadClass("io.sparkcrypt.SchemaTagCryptoFactory").newInstance()
loader.close()
conf = machine.org.apache.hadoop.conf.Configuration(False)
tell(write=failure(factory.getFileEncryptionProperties, conf, None, None))
""")
    assert told["write"].startswith("org.apache.parquet.crypto.ParquetCryptoRuntimeException: ConfigError: ")


def test_stock_factory_works_with_the_kms_client_alone(scenario: Scenario, faults: Faults) -> None:
    """parquet-mr's own factory, with properties by hand and no policy, encrypts and reads through the bridge."""
    told = scenario("""
spark = start(jar, spark__hadoop__parquet__sparkcrypt__key_service=key_service)
spark.conf.set("parquet.crypto.factory.class", "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory")
spark.conf.set("parquet.encryption.kms.client.class", "io.sparkcrypt.BridgeKmsClient")
options = {"parquet.encryption.footer.key": "footer%3A1", "parquet.encryption.column.keys": "arn%3Aaws:id"}
spark.range(10).repartition(1).write.options(**options).parquet(folder + "/out")
spark._jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
tell(rows=spark.read.parquet(folder + "/out").agg({"id": "sum"}).first()[0])
""")
    assert told["rows"] == 45
    assert faults.count("wrap footer:1") == faults.count("unwrap footer:1") == 1
    assert faults.count("wrap arn:aws") == faults.count("unwrap arn:aws") == 1


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_plain_http_is_allowed_by_the_launch_alone(scenario: Scenario, allowed: str) -> None:
    """The helper speaks plain http beyond this machine by the launch's word, whatever stands in the environment."""
    told = scenario(
        f"""
spark = start(jar, spark__sparkcrypt__allow_http="{allowed}")
spark.sql("SET spark.sparkcrypt.allow_http=true")
# 192.0.2.0/24 is nobody's (RFC 5737)
vault = {{"type": "vault", "address": "http://192.0.2.1:8200", "timeout_seconds": 0.1, "max_retries": 0}}
tell(error=failure(kms(spark, json.dumps(vault)).wrapKey, KEY, "a"))
""",
        VAULT_TOKEN="hvs.any",
        SPARKCRYPT_ALLOW_HTTP="true" if allowed == "false" else "false",
    )
    assert ("plain http" in told["error"]) == (allowed == "false")
    assert ("KeyServiceUnavailableError" in told["error"]) == (allowed == "true")


def test_one_wrap_and_one_unwrap_per_master_key(scenario: Scenario, faults: Faults) -> None:
    """A write of 4 files with two tagged keys makes 1 + 2 wraps in its JVM, a read of them 1 + 2 unwraps."""
    told = scenario("""
from pyspark.sql import functions as F
spark = start(jar)
configure(spark, policy)
tagged = lambda name, tag: F.col("id").alias(name, metadata={"tags": [tag]})
rows = spark.range(100).repartition(4).select("id", tagged("a", "pii"), tagged("b", "pii"), tagged("c", "fin"))
rows.write.parquet(folder + "/out")
tell(rows=list(spark.read.parquet(folder + "/out").agg({"a": "sum", "b": "sum", "c": "sum"}).first()))
""")
    assert told["rows"] == [4950] * 3
    assert sorted(event for _, event in faults.events() if "wrap" in event) == [
        "unwrap fin", "unwrap footer", "unwrap pii", "wrap fin", "wrap footer", "wrap pii",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_thousand_files_in_one_jvm_take_one_helper(scenario: Scenario, faults: Faults, tmp_path: Path) -> None:
    """1,000 files are written and read back through one helper process."""
    told = scenario("""
from pyspark.sql import functions as F
spark = start(jar)
configure(spark, policy)
started = time.monotonic()
spark.range(0, 1000, 1, 1000).select(F.col("id").alias("a", metadata={"tags": "pii"})).write.parquet(folder + "/out")
written = time.monotonic() - started
total = spark.read.schema("a long").parquet(folder + "/out").agg({"a": "sum"}).first()[0]
tell(total=total, write_seconds=written, read_seconds=time.monotonic() - started - written)
""")
    assert told["total"] == 499500
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1000
    assert len(faults.helpers()) == 1
    assert faults.count("wrap") == 2
