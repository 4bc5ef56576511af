"""The job on a real S3 server, through Spark's own s3a: a bare directory is encrypted into another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

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
try:
    run(sparkcrypt.load_policy(root / "p" / "state_on_s3.yaml"), "s3a://lake/other")
    refused = ""
except ConfigError as error:
    refused = str(error)
sparkcrypt.configure(spark, policy)
read = sorted(tuple(row) for row in spark.read.parquet("s3a://lake/new").collect())
print("RESULT", json.dumps({"report": report, "equal": read == sorted(rows), "refused": refused}))
"""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    """A real S3 server, in memory."""
    running = start_s3(tmp_path / "s3")
    yield running
    running.stop()


def of_python(s3: S3) -> Any:
    """Return the server as pyarrow sees it."""
    return pafs.S3FileSystem(
        access_key="test",
        secret_key="test",
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


def test_directory_on_s3(s3: S3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Workers rewrite it page by page with what Spark's s3a is told of that bucket; state on S3 is refused."""
    try:
        jars = ",".join(map(str, s3a_jars()))
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    system = of_python(s3)
    system.create_dir("lake")
    policy = make_policy(tmp_path / "p")
    told = (tmp_path / "p" / "policy.yaml").read_text()
    (tmp_path / "p" / "state_on_s3.yaml").write_text(told.replace("state/", "'s3a://lake/state'"))
    fields = [{"name": name, "type": ["null", kind]} for name, kind in (("id", "int"), ("note", "string"))]
    fields.insert(1, {"name": "email", "type": ["null", "string"], "confluent:tags": ["pii"]})  # type: ignore[dict-item]
    (tmp_path / "t.avsc").write_text(json.dumps({"type": "record", "name": "t", "fields": fields}))
    done = fresh_jvm(JOB, tmp_path, jars, s3.endpoint, SECRET, env={"SPARKCRYPT_JAR": str(private_jar)})
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-3000:]
    result = json.loads(lines[0].removeprefix("RESULT "))
    report = result["report"]
    assert (report["outcome"], report["rows"], report["verified"], report["swap"]) == (
        "done", 100, True, "new directory"
    )  # fmt: skip
    assert {unit["engine"] for unit in report["units"]} == {"native"}, report
    assert result["equal"]
    copy = local(system, "lake/new", tmp_path / "new")
    assert_encrypted(copy, policy, {"email": "pii"}, visible=["note 1"])
    assert_plaintext(local(system, "lake/old", tmp_path / "old"))
    assert "s3a" in result["refused"] and "run_state" in result["refused"], result["refused"]
    assert system.get_file_info("lake/other").type == pafs.FileType.NotFound
