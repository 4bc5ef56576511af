"""The crypto factory in a real Spark: what it writes around parquet-mr's own factory, and what it refuses to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, TypeAlias

import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import inspect_file
from tests.faults.conftest import Faults

pytestmark = pytest.mark.spark
Scenario: TypeAlias = Callable[..., dict[str, Any]]

PRELUDE = """
import glob, json, os, shutil, sys, time
from pyspark.sql import functions as F
from tests.faults.session import *
jar, key_service, policy, folder = sys.argv[1:5]
def tagged(name, tag="pii"):
    return F.col("id").alias(name, metadata={"tags": [tag]})
def shown(frame):
    return failure(frame.collect)
"""


@pytest.fixture
def scenario(fresh_jvm: Callable[..., CompletedProcess[str]], jar: Path, faults: Faults, tmp_path: Path) -> Scenario:
    """Runs a script in a fresh JVM and returns what it told."""

    def run(script: str, **policy: Any) -> dict[str, Any]:
        finished = fresh_jvm(
            PRELUDE + script,
            jar,
            faults.key_service,
            faults.policy(**policy),
            tmp_path,
            env={"PYTHONPATH": faults.environment["PYTHONPATH"]},
        )
        assert finished.returncode == 0, finished.stderr[-4000:]
        told: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
        return told

    return run


def test_column_names_that_parquet_s_property_cannot_hold(scenario: Scenario, tmp_path: Path) -> None:
    """Columns named with ``. , ; :`` or spaces are encrypted, and nothing else is; the digest is noted."""
    told = scenario("""
spark = start(jar)
configure(spark, policy)
odd = ["a.b", "a,b", "a;b", "a:b", "a b", "Ä"]
nested = F.array("id").alias("l", metadata={"tags": "fin"})
rows = spark.range(20).repartition(1).select("id", *[tagged(name) for name in odd], nested)
rows.write.parquet(folder + "/out")
back = spark.read.parquet(folder + "/out")
tell(names=back.columns, sums=[back.agg(F.sum(F.col("`" + name + "`"))).first()[0] for name in odd])
""", footer={"key": "footer", "mode": "plaintext"})  # fmt: skip
    assert told["sums"] == [190] * 6
    (file,) = (tmp_path / "out").glob("*.parquet")
    columns = inspect_file(file).columns
    assert columns is not None
    keys = {path: column.key_id for path, column in columns.items()}
    expected: dict[tuple[str, ...], str | None] = {("id",): None, ("l", "list", "element"): "fin"}
    expected.update({(name,): "pii" for name in ("a.b", "a,b", "a;b", "a:b", "a b", "Ä")})
    assert keys == expected
    assert len(pq.read_metadata(file).metadata[b"sparkcrypt.policy.digest"]) == 64


def test_untagged_columns_under_the_footer_key(scenario: Scenario, faults: Faults) -> None:
    """With footer-key columns alone the file is encrypted under one key, and read back with one unwrap."""
    told = scenario("""
spark = start(jar)
configure(spark, policy)
spark.range(10).repartition(1).write.parquet(folder + "/out")
magic = [open(f, "rb").read(4).decode() for f in glob.glob(folder + "/out/*.parquet")]
tell(magic=magic, total=spark.read.parquet(folder + "/out").agg({"id": "sum"}).first()[0])
""", untagged="footer_key")  # fmt: skip
    assert told == {"magic": ["PARE"], "total": 45}
    assert faults.count("wrap") == faults.count("unwrap") == 1


def test_factory_without_policy_or_schema_or_path_writes_and_reads_nothing(scenario: Scenario) -> None:
    """No policy: writes and reads are refused.  No path: nothing is opened.  No schema: nothing is written."""
    told = scenario("""
spark = start(jar)
spark.range(3).write.parquet(folder + "/plain")
spark.conf.set("parquet.crypto.factory.class", "io.sparkcrypt.SchemaTagCryptoFactory")
no_policy = failure(spark.range(3).write.parquet, folder + "/out"), failure(spark.read.parquet, folder + "/plain")
machine = spark._jvm
conf = machine.org.apache.hadoop.conf.Configuration(False)
conf.set("parquet.sparkcrypt.policy", policy)
conf.set("parquet.sparkcrypt.session_token", registered(spark, policy))
factory = machine.io.sparkcrypt.SchemaTagCryptoFactory()
path = machine.org.apache.hadoop.fs.Path("/x")
opened = factory.getFileDecryptionProperties(conf, None)
tell(no_policy=no_policy, no_schema=failure(factory.getFileEncryptionProperties, conf, path, None),
     no_key=failure(opened.getKeyRetriever().getKey, bytearray(b"x")), files=glob.glob(folder + "/out/*.parquet"))
""")
    assert all("ConfigError" in error and "parquet.sparkcrypt.policy" in error for error in told["no_policy"])
    assert "no schema" in told["no_schema"]
    assert "no path" in told["no_key"]
    assert told["files"] == []


def test_ignore_corrupt_files_is_refused_wherever_it_is_set(scenario: Scenario) -> None:
    """With ignoreCorruptFiles Spark reads a refused file as one without rows; each way to set it ends in an error."""
    told = scenario("""
spark = start(jar)
configure(spark, policy)
spark.range(10).select("id", tagged("a")).write.parquet(folder + "/out")
def read(**options):
    return spark.read.options(**options).schema("id long, a long").parquet(folder + "/out")
option = shown(read(ignoreCorruptFiles="true"))
odd_case = shown(read(IGNORECORRUPTFILES="TRUE"))
spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
conf, inferred = shown(read()), failure(spark.read.parquet, folder + "/out")
spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
row_reader = shown(read())
spark.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
tell(refused=[option, odd_case, conf, inferred, row_reader], rows=read().count())
""")
    assert ["RefusedError: ConfigError: ignoreCorruptFiles" in error for error in told["refused"]] == [True] * 5
    assert told["rows"] == 10


def test_moved_changed_and_forged_files_are_refused(scenario: Scenario) -> None:
    """A file that was renamed, whose algorithm or length was changed, or that is no Parquet is refused."""
    told = scenario("""
spark = start(jar)
configure(spark, policy)
spark.range(10).repartition(1).select("id", tagged("a")).write.parquet(folder + "/out")
(file,) = glob.glob(folder + "/out/*.parquet")
good = open(file, "rb").read()
def read_as(data, name=os.path.basename(file)):
    case = folder + f"/case{len(os.listdir(folder))}"
    os.mkdir(case)
    with open(case + "/" + name, "wb") as stream:
        stream.write(data)
    return shown(spark.read.schema("id long, a long").parquet(case))
start_of_footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
ctr = bytearray(good)
assert ctr[start_of_footer:start_of_footer + 2] == b"\\x1c\\x1c"
ctr[start_of_footer + 1] = 0x2C  # field 2 of the union: AES_GCM_CTR_V1
flipped = bytearray(good)
flipped[-20] ^= 1
tell(
    same=read_as(good), renamed=read_as(good, "part-other.parquet"),
    algorithm=read_as(bytes(ctr)), flipped=read_as(bytes(flipped)),
    too_long=read_as(good[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PARE"),
    negative=read_as(good[:-8] + b"\\xff" * 4 + b"PARE"),
    short=read_as(b"PAR1PAR1"), magic=read_as(good[:-4] + b"PARX"),
)
""")
    assert told.pop("same") == ""
    assert "renamed" in told["renamed"]
    assert "algorithm" in told["algorithm"]
    assert all("FormatError" in told[case] for case in ("too_long", "negative", "short", "magic"))
    assert all(told.values())


def test_denied_column_is_named_and_other_columns_stay_readable(scenario: Scenario, faults: Faults) -> None:
    """A reader without a column's key reads the other columns; the column itself is refused by its name."""
    scenario("""
spark = start(jar)
configure(spark, policy)
nested = F.struct(tagged("x")).alias("s")
spark.range(10).select("id", tagged("a"), tagged("b", "fin"), nested).write.parquet(folder + "/out")
tell()
""")
    (faults.folder / "deny").write_text("pii")
    told = scenario("""
spark = start(jar)
configure(spark, policy)
rows = spark.read.parquet(folder + "/out")
tell(others=list(rows.agg(F.sum("id"), F.sum("b")).first()), denied=shown(rows.select("a")),
     filtered=shown(rows.filter("a > 3").select("id")), nested=shown(rows.select("s")))
""")
    assert told["others"] == [45, 45]
    for case, column in (("denied", "a"), ("filtered", "a"), ("nested", "s.x")):
        assert f"RefusedError: KeyAccessDeniedError: column {column} cannot be read: its key 'pii'" in told[case]
        assert "column b" not in told[case]


def test_task_that_spark_ends_leaves_no_failure_in_the_access_log(
    scenario: Scenario, faults: Faults, tmp_path: Path
) -> None:
    """A task that is cancelled while it waits for a key was not refused one; a denied key still leaves its event."""
    log = tmp_path / "log"
    more = {"tags": [["pii", {"key": "slow"}]], "access_log": {"location": str(log), "required": False}}
    scenario(
        """
spark = start(jar)
configure(spark, policy)
spark.range(10).select("id", tagged("a")).write.parquet(folder + "/out")
tell()
""",
        **more,
    )
    script = """
import threading, time
spark = start(jar)
configure(spark, policy)
def read():
    spark.sparkContext.setJobGroup("read", "read", interruptOnCancel=True)
    shown(spark.read.schema("id LONG, a LONG").parquet(folder + "/out").select("a"))
reading = threading.Thread(target=read)
reading.start()
if "CANCEL":
    deadline = time.monotonic() + 60
    while not os.path.exists(events) or "unwrap slow" not in open(events).read():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    spark.sparkContext.cancelJobGroup("read")
reading.join()
time.sleep(4)
tell()
"""
    script = script.replace("events", repr(str(faults.folder / "events")))
    scenario(script, **more)
    assert faults.count("unwrap slow"), "no task asked for the key"
    assert [event for event in read_events(log) if event["outcome"] == "failed"] == []
    (faults.folder / "deny").write_text("slow")
    scenario(script.replace("CANCEL", ""), **more)
    assert {event["outcome"] for event in read_events(log)} == {"refused"}


def read_events(log: Path) -> list[dict[str, Any]]:
    """Return the access events that a log has."""
    lines = [line for file in log.rglob("*") if file.is_file() for line in file.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event.get("kind") == "access"]


def test_key_material_in_an_external_file_is_read(scenario: Scenario) -> None:
    """Files that parquet-mr wrote with external key material are opened by it, and refused when it names other keys."""
    told = scenario("""
spark = start(jar, spark__hadoop__parquet__sparkcrypt__key_service=key_service)
spark.conf.set("parquet.crypto.factory.class", "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory")
spark.conf.set("parquet.encryption.kms.client.class", "io.sparkcrypt.BridgeKmsClient")
options = {"parquet.encryption.footer.key": "footer", "parquet.encryption.column.keys": "pii:id",
           "parquet.encryption.key.material.store.internally": "false"}
for key, name in (("pii", "good"), ("stranger", "bad")):
    options["parquet.encryption.column.keys"] = key + ":id"
    spark.range(10).repartition(1).write.options(**options).parquet(folder + "/" + name)
configure(spark, policy)
tell(good=spark.read.parquet(folder + "/good").agg({"id": "sum"}).first()[0],
     bad=failure(lambda: spark.read.parquet(folder + "/bad").collect()))
""")
    assert told["good"] == 45
    assert "stranger" in told["bad"]


def test_custom_partition_location_keeps_its_identity(scenario: Scenario, tmp_path: Path) -> None:
    """A file for a custom partition location is staged under another name; its AAD prefix has the final one."""
    told = scenario("""
spark = start(jar, spark__sql__warehouse__dir=folder + "/warehouse")
configure(spark, policy)
rows = spark.range(3).select(tagged("a"), F.lit("x").alias("b"))
rows.filter("a < 0").write.partitionBy("b").saveAsTable("t")
spark.sql(f"ALTER TABLE t ADD PARTITION (b='x') LOCATION '{folder}/elsewhere/b=x'")
rows.write.insertInto("t")
tell(total=spark.table("t").agg({"a": "sum"}).first()[0])
""")
    assert told["total"] == 3
    files = list((tmp_path / "elsewhere" / "b=x").glob("*.parquet"))
    assert files
    assert all(f"/b=x/{file.name}\0".encode() in file.read_bytes() for file in files)


def test_statistics_of_encrypted_columns_leave_the_catalog(scenario: Scenario) -> None:
    """After ANALYZE … FOR ALL COLUMNS the catalog keeps other columns' statistics, not the tagged column's."""
    told = scenario("""
spark = start(jar, spark__sql__warehouse__dir=folder + "/warehouse")
configure(spark, policy)
machine = spark._jvm
spark._jsparkSession.listenerManager().register(machine.io.sparkcrypt.StatisticsGuard())
spark.range(9).select("id", tagged("ssn")).write.saveAsTable("t")
spark.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
identifier = machine.org.apache.spark.sql.catalyst.TableIdentifier("t")
def statistics():
    return spark._jsparkSession.sessionState().catalog().getTableMetadata(identifier).stats().get()
known = statistics().colStats().keySet().toString(), statistics().rowCount().toString()
spark.conf.unset("parquet.crypto.factory.class")
spark.conf.unset("spark.sql.sources.commitProtocolClass")
spark.conf.set("parquet.sparkcrypt.policy", "no policy")
spark.range(9).select("id", tagged("ssn")).write.mode("overwrite").saveAsTable("t")
spark.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
tell(known=known, untold=statistics().colStats().keySet().toString())
""")
    assert told["known"] == ["Set(id)", "Some(9)"]
    assert told["untold"] == "Set()"
