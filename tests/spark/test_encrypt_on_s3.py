"""The job on a real S3 server, through Spark's own s3a: a bare folder is encrypted into another; state there too."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.conftest import FreshJvm, require_service
from tests.services import ServiceUnavailableError
from tests.services.s3 import S3, s3a_jars, start_s3
from tests.spark.support import SECRET, assert_encrypted, assert_plaintext, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

JOB = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt, sparkcrypt.tags.avro
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.errors import ConfigError
root, jars, endpoint, secret = Path(sys.argv[1]), *sys.argv[2:]
conf = {
    "spark.ui.enabled": "false", "spark.jars": jars, "spark.sql.warehouse.dir": str(root / "warehouse"),
    "spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.access.key": "test", "spark.hadoop.fs.s3a.secret.key": "test",
    "spark.hadoop.fs.s3a.bucket.lake.endpoint": endpoint,
}
builder = SparkSession.builder.master("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = [(number, f"{secret}-{number}", f"note {number}") for number in range(100)]
frame = spark.createDataFrame(rows, "id INT, email STRING, note STRING").repartition(2)
frame.write.option("parquet.compression", "uncompressed").parquet("s3a://lake/old")
# A bucket's own settings win; with those of all buckets nobody would be reached from here on.
spark.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.endpoint", "http://127.0.0.1:9")
avro, policy = sparkcrypt.tags.avro.read_avro_file(root / "t.avsc"), sparkcrypt.load_policy(root / "p" / "policy.yaml")
def run(policy, output):
    report = sparkcrypt.encrypt_table(spark, None, policy, path="s3a://lake/old", output=output, avro=avro)
    return report.to_dict()
report = run(policy, "s3a://lake/new")
on_s3 = sparkcrypt.load_policy(root / "p" / "state_on_s3.yaml")
other = run(on_s3, "s3a://lake/other")
records = open_state_directory(spark, on_s3.run_state, outside="s3a://lake/old").list("")
try:
    open_state_directory(spark, "s3://lake/old/state", outside="s3a://lake/old")
    refused = ""
except ConfigError as error:
    refused = str(error)
sparkcrypt.configure(spark, policy)
read = sorted(tuple(row) for row in spark.read.parquet("s3a://lake/new").collect())
print("RESULT", json.dumps({"report": report, "equal": read == sorted(rows), "refused": refused,
    "outcome": other["outcome"], "records": records}))
"""


HIDDEN_KEYS_JOB = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt, sparkcrypt.tags.avro, sparkcrypt.runs.table.footers
root, jars, endpoint, secret, access_key, secret_key = Path(sys.argv[1]), *sys.argv[2:]
conf = {
    "spark.ui.enabled": "false", "spark.jars": jars, "spark.sql.warehouse.dir": str(root / "warehouse"),
    "spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.hadoop.security.credential.provider.path": f"localjceks://file{root}/keys.jceks",
}
builder = SparkSession.builder.master("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
gateway, hadoop = spark.sparkContext._gateway, spark.sparkContext._jsc.hadoopConfiguration()
provider = spark._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(hadoop).get(0)
for name, value in (("access", access_key), ("secret", secret_key)):
    characters = gateway.new_array(spark._jvm.char, len(value))
    for place, character in enumerate(value):
        characters[place] = character
    provider.createCredentialEntry(f"fs.s3a.{name}.key", characters)
provider.flush()
rows = [(number, f"{secret}-{number}", f"note {number}") for number in range(100)]
frame = spark.createDataFrame(rows, "id INT, email STRING, note STRING").repartition(2)
frame.write.option("parquet.compression", "uncompressed").parquet("s3a://lake/old")
avro, policy = sparkcrypt.tags.avro.read_avro_file(root / "t.avsc"), sparkcrypt.load_policy(root / "p" / "policy.yaml")
sparkcrypt.runs.table.footers.FEW = 1  # so that tasks read the footers first
report = sparkcrypt.encrypt_table(spark, None, policy, path="s3a://lake/old", output="s3a://lake/new", avro=avro)
sparkcrypt.configure(spark, policy)
read = sorted(tuple(row) for row in spark.read.parquet("s3a://lake/new").collect())
print("RESULT", json.dumps({"report": report.to_dict(), "equal": read == sorted(rows)}))
"""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    """A real S3 server, in memory."""
    running = start_s3(tmp_path / "s3")
    yield running
    running.stop()


def of_python(s3: S3, access_key: str = "test", secret_key: str = "test") -> Any:
    """Return the server as pyarrow sees it."""
    return pafs.S3FileSystem(
        access_key=access_key,
        secret_key=secret_key,
        region="us-east-1",
        scheme="http",
        endpoint_override=s3.endpoint.partition("//")[2],
        allow_bucket_creation=True,
    )


def local(system: Any, path: str, to: Path) -> Path:
    """Copy the data files below a key prefix into a local folder."""
    to.mkdir()
    for info in system.get_file_info(pafs.FileSelector(path, recursive=True)):
        if info.base_name.endswith(".parquet"):
            with system.open_input_file(info.path) as file:
                (to / info.base_name).write_bytes(file.read())
    return to


def write_schema(folder: Path) -> None:
    """Write the Avro schema of the directory, by which ``email`` is ``pii``."""
    number, text = ["null", "int"], ["null", "string"]
    fields = [
        {"name": "id", "type": number},
        {"name": "email", "type": text, "confluent:tags": ["pii"]},
        {"name": "note", "type": text},
    ]
    (folder / "t.avsc").write_text(json.dumps({"type": "record", "name": "t", "fields": fields}))


def test_directory_on_s3(s3: S3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Workers rewrite it page by page with what Spark's s3a is told of that bucket; state may lie there too."""
    try:
        jars = ",".join(map(str, s3a_jars()))
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    system = of_python(s3)
    system.create_dir("lake")
    policy = make_policy(tmp_path / "p")
    told = (tmp_path / "p" / "policy.yaml").read_text()
    (tmp_path / "p" / "state_on_s3.yaml").write_text(told.replace("state/", "'s3a://lake/state'"))
    write_schema(tmp_path)
    done = fresh_jvm(JOB, tmp_path, jars, s3.endpoint, SECRET, env={"SPARKCRYPT_JAR": str(private_jar)})
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-3000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    report = result["report"]
    assert (report["outcome"], report["rows"], report["verified"], report["swap"]) == (
        "done", 100, True, "new directory"
    )  # fmt: skip
    assert {unit["engine"] for unit in report["units"]} == {"native"}, report
    assert any("may have seen a part" in warning for warning in report["warnings"])
    assert result["equal"]
    copy = local(system, "lake/new", tmp_path / "new")
    assert_encrypted(copy, policy, {"email": "pii"}, visible=["note 1"])
    assert_plaintext(local(system, "lake/old", tmp_path / "old"))
    assert "inside the table's folder" in result["refused"], result["refused"]
    assert result["outcome"] == "done"
    assert {name.partition("/")[0] for name in result["records"]} >= {"keys", "locks", "log"}
    assert_encrypted(local(system, "lake/other", tmp_path / "other"), policy, {"email": "pii"}, visible=["note 1"])


@pytest.fixture
def choosy_s3() -> Iterator[S3]:
    """A real S3 server, in this process, that takes any credentials but those of the machine."""
    served = DomainDispatcherApplication(create_backend_app)

    def asked(environ: dict[str, Any], start: Any) -> Any:
        if "Credential=machine/" in environ.get("HTTP_AUTHORIZATION", ""):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code></Error>"]
        return served(environ, start)

    server = make_server("127.0.0.1", 0, asked, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield S3(f"http://127.0.0.1:{server.server_port}", None)  # type: ignore[arg-type]
    server.shutdown()
    thread.join()


def test_keys_that_only_spark_knows(choosy_s3: S3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Where Python is refused on S3, the driver reads footers and Spark's engine the unit, and the report says why."""
    try:
        jars = ",".join(map(str, s3a_jars()))
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    system = of_python(choosy_s3)
    system.create_dir("lake")
    policy = make_policy(tmp_path / "p")
    write_schema(tmp_path)
    own = {"AWS_ACCESS_KEY_ID": "machine", "AWS_SECRET_ACCESS_KEY": "machine", "AWS_EC2_METADATA_DISABLED": "true"}
    env = {"SPARKCRYPT_JAR": str(private_jar), **own}
    done = fresh_jvm(HIDDEN_KEYS_JOB, tmp_path, jars, choosy_s3.endpoint, SECRET, "spark", "spark", env=env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-3000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    report = result["report"]
    assert (report["outcome"], report["rows"], report["verified"], result["equal"]) == ("done", 100, True, True)
    assert {unit["engine"] for unit in report["units"]} == {"spark"}, report
    notes = [note for unit in report["units"] for note in unit["notes"]]
    assert any("cannot be reached" in note and "ACCESS_DENIED" in note for note in notes), notes
    assert_encrypted(local(system, "lake/new", tmp_path / "new"), policy, {"email": "pii"}, visible=["note 1"])
