"""ORC tables whose files lie on a real S3 server: plan, run, verify, rollback, rotation, expiry."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.conftest import FreshJvm, require_service
from tests.services import ServiceUnavailableError
from tests.services.meddled_s3 import MeddledS3
from tests.services.s3 import s3a_jars
from tests.spark.remote_tables import FORMATS, assert_lived
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]
ON_S3 = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt
from tests.spark.remote_tables import fill_orc, live_through
root, jars, endpoint, folder = Path(sys.argv[1]), *sys.argv[2:]
conf = {
    "spark.ui.enabled": "false", "spark.jars": jars, "spark.sql.warehouse.dir": str(root / "warehouse"),
    "spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.access.key": "test", "spark.hadoop.fs.s3a.secret.key": "test",
}
builder = SparkSession.builder.master("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
fill_orc(spark, folder)
policy = sparkcrypt.load_policy(root / "p" / "policy.yaml")
sparkcrypt.configure(spark, policy)
print("RESULT", json.dumps(live_through(spark, policy)))
"""


def test_table_on_s3(s3_server: MeddledS3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Every step is done by the native engine, by what Spark's own s3a is told, in a JVM that has it."""
    try:
        jars = ",".join(map(str, s3a_jars()))
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    make_policy(tmp_path / "p", more=FORMATS)
    folder = f"s3a://lake/{uuid.uuid4().hex}/t"
    done = fresh_jvm(ON_S3, tmp_path, jars, s3_server.endpoint, folder, env={"SPARKCRYPT_JAR": str(private_jar)})
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-3000:]
    assert_lived(json.loads(lines[0].removeprefix("RESULT ")))
