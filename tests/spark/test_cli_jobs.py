from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.services.installed import ROOT, spark_home
from tests.spark.support import encrypted_columns, footers, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
SECONDS = 400.0
AVRO = {
    "type": "record",
    "name": "customer",
    "fields": [{"name": "id", "type": "long"}, {"name": "ssn", "type": "string", "confluent:tags": ["pii"]}],
}


def submit(home: Path, java: dict[str, str], jar: Path, job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a job with spark-submit, without --jars, and with a metastore below a folder of its own."""
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{home / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={home / 'derby.log'}",
    }
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    environment = {
        **java,
        "PYTHONPATH": str(ROOT),
        "SPARKCRYPT_JAR": str(jar),
        "SPARK_CONF_DIR": str(home / "conf"),
        "PYTHONWARNINGS": "ignore",
    }
    command = [str(spark_home() / "bin" / "spark-submit"), str(ROOT / "jobs" / job), *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS)


def test_the_job_encrypts_under_spark_submit(tmp_path: Path, java: dict[str, str], private_jar: Path) -> None:
    """`spark-submit jobs/encrypt_table.py`, with no jar named, encrypts, and stdout is the report alone."""
    policy = make_policy(tmp_path)
    (tmp_path / "raw").mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3], "ssn": ["a", "b", "c"]}), tmp_path / "raw" / "part-0.parquet")
    (tmp_path / "customer.avsc").write_text(json.dumps(AVRO))
    arguments = ["--path", tmp_path / "raw", "--output", tmp_path / "out", "--avro-schema", tmp_path / "customer.avsc"]
    arguments += ["--policy", tmp_path / "policy.yaml", "--report", (tmp_path / "report.json").as_uri(), "--json"]
    done = submit(tmp_path, java, private_jar, "encrypt_table.py", *map(str, arguments))
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert "1 of 1 file" in done.stderr
    assert (report["outcome"], report["files_rewritten"], report["rows"]) == ("done", 1, 3)
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert [encrypted_columns(footer) for footer in footers(tmp_path / "out", policy)] == [{"ssn": "pii"}]


def test_a_failing_job_ends_with_its_code_and_a_report(tmp_path: Path, java: dict[str, str], private_jar: Path) -> None:
    """spark-submit hands on the exit code of the error's class, and the report says that the job failed."""
    make_policy(tmp_path)
    arguments = ["--table", "default.nosuch", "--policy", "policy.yaml", "--report", "report.json"]
    done = submit(tmp_path, java, private_jar, "verify_table.py", *arguments)
    assert done.returncode == 65, done.stderr[-4000:]
    assert "error: table default.nosuch: not found" in done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["outcome"] == "failed"
