"""The job on an S3 server that lets only Spark's own s3a in: a bare folder is encrypted into another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from tests.conftest import FreshJvm
from tests.services.meddled_s3 import Environ, MeddledS3, Serve
from tests.spark.fresh_scripts import run_on_s3
from tests.spark.support import SECRET, assert_encrypted, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

JOB = """
import sparkcrypt.tags.avro, sparkcrypt.runs.table.footers
secret, access_key, secret_key = arguments
spark = start({"spark.hadoop.hadoop.security.credential.provider.path": f"localjceks://file{root}/keys.jceks"})
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


def of_python(s3: MeddledS3) -> Any:
    """Return the server as pyarrow sees it."""
    endpoint = s3.endpoint.partition("//")[2]
    return pafs.S3FileSystem(
        access_key="test", secret_key="test", region="us-east-1", scheme="http", endpoint_override=endpoint
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


def refuse_the_machine(environ: Environ, serve: Serve) -> Any:
    """Take any credentials but those of the machine."""
    if "Credential=machine/" in environ.get("HTTP_AUTHORIZATION", ""):
        body = b"<Error><Code>AccessDenied</Code></Error>"
        return "403 Forbidden", [("Content-Type", "application/xml")], body
    return serve()


def test_keys_that_only_spark_knows(
    s3_server: MeddledS3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path
) -> None:
    """Where Python is refused on S3, the driver reads footers and Spark's engine the unit, and the report says why."""
    system = of_python(s3_server)
    policy = make_policy(tmp_path / "p")
    write_schema(tmp_path)
    own = {"AWS_ACCESS_KEY_ID": "machine", "AWS_SECRET_ACCESS_KEY": "machine", "AWS_EC2_METADATA_DISABLED": "true"}
    with s3_server.meddling(refuse_the_machine):
        words, jar = (SECRET, "spark", "spark"), str(private_jar)
        result = run_on_s3(fresh_jvm, JOB, tmp_path, s3_server, *words, SPARKCRYPT_JAR=jar, **own)
    report = result["report"]
    assert (report["outcome"], report["rows"], report["verified"], result["equal"]) == ("done", 100, True, True)
    assert {unit["engine"] for unit in report["units"]} == {"spark"}, report
    notes = [note for unit in report["units"] for note in unit["notes"]]
    assert any("cannot be reached" in note and "ACCESS_DENIED" in note for note in notes), notes
    assert_encrypted(local(system, "lake/new", tmp_path / "new"), policy, {"email": "pii"}, visible=["note 1"])
