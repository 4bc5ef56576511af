"""The time that access events add to the opening of a key in a Spark task."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.harness import Report, process
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.policy.model import AccessLogRule
from sparkcrypt.spark.jvm.jar import jar_path

SOURCE = Path(__file__).parent / "java" / "io" / "sparkcrypt" / "AccessCost.java"
OPENED = ("java.nio", "java.lang", "java.lang.invoke", "java.net", "java.util", "java.util.concurrent", "sun.nio.ch")
JVMS = 5
KEYS = 5_000
REQUIRED_KEYS = 1_000
MOST_MICROSECONDS = 50


def run() -> Report:
    """Open keys under a policy without a log, with one, and with a required one, in turns in each JVM."""
    import pyspark

    report = Report("access_events", "one key of a column, local key service, by a task of Spark")
    classpath = f"{jar_path()}:{Path(pyspark.__file__).parent}/jars/*"
    with tempfile.TemporaryDirectory() as folder:
        policies = _policies(Path(folder))
        subprocess.run(["javac", "-cp", classpath, "-d", folder, str(SOURCE)], check=True)
        options = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        command = ["java", *options, "-cp", f"{folder}:{classpath}", "io.sparkcrypt.AccessCost"]
        for what, kind in (("further keys of an event", "same"), ("keys of further columns", "new")):
            medians = [_medians(command, KEYS, kind, policies[:2]) for _ in range(JVMS)]
            report.add(f"{what}: opened, no log", "us", [without for without, _ in medians])
            report.add(f"{what}: opened, with a log", "us", [with_log for _, with_log in medians])
            added = [with_log - without for without, with_log in medians]
            report.at_most(f"{what}: added by the log", "us", added, MOST_MICROSECONDS)
        required = [_medians(command, REQUIRED_KEYS, "new", [policies[0], policies[2]]) for _ in range(JVMS)]
        report.add("first key of an event where the log is required: added", "us", [b - a for a, b in required])
    report.facts = {"keys": KEYS, "figures": "the median of each JVM's second half"}
    return report


def _policies(folder: Path) -> list[Policy]:
    bare = policy_from_document(
        {
            "version": 1,
            "key_service": {"type": "local", "path": str(folder / "keys")},
            "footer": {"key": "footer"},
            "untagged": "plaintext",
            "run_state": str(folder / "state"),
            "tags": {f"tag{number}": {"key": f"key{number}"} for number in range(20)},
        },
        locate=str,
    )
    open_key_service(bare.key_service).create("bench")
    logs = [AccessLogRule(str(folder / "log")), AccessLogRule(str(folder / "required"), required=True)]
    return [bare, *(replace(bare, access_log=log) for log in logs)]


def _medians(command: list[str], keys: int, kind: str, policies: list[Policy]) -> tuple[float, float]:
    """Return the median of each policy's openings, in microseconds, after the JVM's warm-up."""
    _, printed = process([*command, str(keys), kind, *(policy.canonical() for policy in policies)])
    figures: tuple[list[float], list[float]] = ([], [])
    for line in printed.splitlines():
        place, nanoseconds = line.split()
        figures[int(place)].append(int(nanoseconds) / 1000)
    first, second = (statistics.median(found[len(found) // 2 :]) for found in figures)
    return first, second
