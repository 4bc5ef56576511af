"""Scripts in JVMs of their own, and the calls that they make to the key service."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conftest import FreshJvm

START = """
import json, os, sys
from pyspark.sql import SparkSession, functions as F
import sparkcrypt
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""


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


def calls(log: Path, op: str) -> Counter[str]:
    """Return how often each key was used, but for the keys of probes; and empty the log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Counter(line["key_id"] for line in lines if line["op"] == op and not line["key_id"].startswith("probe"))
