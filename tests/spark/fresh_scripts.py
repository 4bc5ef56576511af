"""Scripts in JVMs of their own, and the calls that they make to the key service."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conftest import FreshJvm, or_skip
from tests.services.meddled_s3 import MeddledS3
from tests.services.s3 import s3a_jars

START = """
import json, os, sys
from pyspark.sql import SparkSession, functions as F
import sparkcrypt
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""

S3_SECONDS = 600.0
START_ON_S3 = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt
root, jars, endpoint, *arguments = Path(sys.argv[1]), *sys.argv[2:]
KEYS = {"spark.hadoop.fs.s3a.access.key": "test", "spark.hadoop.fs.s3a.secret.key": "test"}

def start(conf):
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    conf = {
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{root / 'metastore'};create=true",
        "spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1", **conf,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.enableHiveSupport().getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
"""
"""What a script begins with whose Spark reaches S3: it is given a folder, the jars of s3a, and the server's address."""


def run(fresh_jvm: FreshJvm, script: str, *arguments: object, **environment: str) -> str:
    """Run a script that must succeed, and return its output."""
    done = fresh_jvm(script, *arguments, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def result_of(done: subprocess.CompletedProcess[str]) -> Any:
    """Return what a script printed as JSON after the word RESULT."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT "))


def run_on_s3(
    fresh_jvm: FreshJvm, script: str, folder: Path, server: MeddledS3, *arguments: object, **environment: str
) -> Any:
    """Run a script on S3 after `START_ON_S3`, and return its result."""
    jars = ",".join(map(str, or_skip(s3a_jars)))
    given = (folder, jars, server.endpoint, *arguments)
    return result_of(fresh_jvm(START_ON_S3 + script, *given, env=environment, timeout=S3_SECONDS))


def calls(log: Path, op: str) -> Counter[str]:
    """Return how often each key was used, but for the keys of probes; and empty the log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Counter(line["key_id"] for line in lines if line["op"] == op and not line["key_id"].startswith("probe"))
