"""What a command's start costs beside Spark's own, and what ``configure`` adds to a session that a user started."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness import RUNS, Cost, Report
from tests.services.cache import cache_folder
from tests.services.installed import java_home, spark_environment, spark_home

_Steps = list[list[float]]
"""CPU and seconds of each step of a session."""
_SPARK_SQL, _ENCRYPT = "spark-sql -e 'SELECT 1'", "encrypt a table of one small file"
CPU_BAR, CLOCK_BAR, CONFIGURE_BAR, ENCRYPT_BAR = 0.5, 0.6, 0.3, 14
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: JVMs whose Python has ended stay below this process, which waits for them."""
_DRIFT = 2
"""The exit code of a plan that the table differs from."""
_POLICY = """
version: 1
key_service: {{type: local, path: {folder}/keys}}
run_state: {folder}/state
footer: {{key: footer, mode: encrypted}}
audit: {{key: audit}}
untagged: plaintext
tags: {{pii: {{key: pii}}}}
"""
_HIVE_SITE = """<configuration>
  <property>
    <name>javax.jdo.option.ConnectionURL</name>
    <value>jdbc:derby:;databaseName={folder}/of_hive_site;create=true</value>
  </property>
</configuration>
"""
_TABLE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.sql("CREATE TABLE customers (id BIGINT, ssn STRING) USING parquet")
spark.sql("INSERT INTO customers VALUES (1, 'x')")
for number in range(int(sys.argv[1])):
    tags = "OPTIONS ('parquet.sparkcrypt.tags.ssn' = 'pii')"
    spark.sql(f"CREATE TABLE customers{number} (id BIGINT, ssn STRING) USING parquet {tags}")
    spark.sql(f"INSERT INTO customers{number} VALUES (1, 'x')")
"""
MAKE_ARCHIVE = "from sparkcrypt.spark.setup.class_archive import make_archive; make_archive()"
_SESSION = """
import json, os, sys, time
from contextlib import suppress
from pathlib import Path

def cpu():
    spent, below, stats = sum(os.times()[:2]), {str(os.getpid())}, {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            stats[process.name] = (process / "stat").read_text().rpartition(")")[2].split()
    grown = True
    while grown:
        more = {pid for pid, stat in stats.items() if stat[1] in below} - below
        spent += sum(sum(map(int, stats[pid][11:15])) for pid in more) / os.sysconf("SC_CLK_TCK")
        grown, below = bool(more), below | more
    return spent

figures = [(cpu(), time.perf_counter())]
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.sql("SELECT 1").collect()
figures.append((cpu(), time.perf_counter()))
if sys.argv[1:]:
    import sparkcrypt
    sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
figures.append((cpu(), time.perf_counter()))
spark.sql("SELECT * FROM customers").collect()
figures.append((cpu(), time.perf_counter()))
print(json.dumps([[a - b for a, b in zip(*pair)] for pair in zip(figures[1:], figures)]))
"""
"""Prints CPU and seconds of steps: Spark's start, ``configure`` if a policy is given, the first query of a table."""


def run_whole(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[Cost, str]:
    """Run a command; return its seconds, the CPU seconds of all processes that come of it, and its output."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        began = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        wall = time.perf_counter() - began
        os.write(writing, json.dumps([wall, done.returncode, (done.stdout or done.stderr)[-3000:]]).encode())
        while True:
            try:
                os.wait()
            except ChildProcessError:
                os._exit(0)
    os.close(writing)
    _, _, used = os.wait4(child, 0)
    with os.fdopen(reading) as pipe:
        wall, code, printed = json.load(pipe)
    if code not in (0, _DRIFT):
        raise RuntimeError(f"{' '.join(command[:4])} … ended with {code}: {printed}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), printed


def environment() -> dict[str, str]:
    """Return the environment of commands, with a cache of tests and benchmarks for archives of classes.

    It is below folders that others cannot change.
    """
    cache = cache_folder() / "class-archives"
    plain = {**spark_environment(), "JAVA_HOME": str(java_home()), "XDG_CACHE_HOME": str(cache)}
    plain["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{plain['PATH']}"
    plain["PYTHONPATH"] = str(Path.cwd())
    return plain


def _set_ups(work: Path) -> dict[str, tuple[Path, dict[str, str]]]:
    """Return name -> folder and environment: Spark's defaults, and a folder of settings with a hive-site.xml."""
    (work / "settings").mkdir()
    (work / "settings" / "hive-site.xml").write_text(_HIVE_SITE.format(folder=work))
    plain = environment()
    found = {"": plain, " with a hive-site.xml": {**plain, "SPARK_CONF_DIR": str(work / "settings")}}
    return {name: (work / f"of{len(name)}", env) for name, env in found.items()}


def _prepare(folder: Path, env: Mapping[str, str]) -> None:
    folder.mkdir()
    (folder / "policy.yaml").write_text(_POLICY.format(folder=folder))
    run_whole([sys.executable, "-c", _TABLE, str(RUNS)], folder, env)
    run_whole(["sparkcrypt", "keys", "create", "footer", "audit", "pii", "--policy", "policy.yaml"], folder, env)


def run() -> Report:
    """Measure, in rounds of all contenders one after the other."""
    report = Report("start", "The start of commands, and of configure, beside Spark's own")
    policy = ["--policy", "policy.yaml"]
    commands = {
        _SPARK_SQL: [str(spark_home() / "bin" / "spark-sql"), "-e", "SELECT 1"],
        "tags set": ["sparkcrypt", "tags", "set", "default.customers", "ssn", "pii"],
        "plan": ["sparkcrypt", "plan", "--table", "default.customers", *policy, "--json"],
    }
    costs: dict[str, list[Cost]] = {}
    sessions: list[tuple[_Steps, _Steps]] = []
    with tempfile.TemporaryDirectory() as text:
        set_ups = _set_ups(Path(text))
        run_whole([sys.executable, "-c", MAKE_ARCHIVE], Path(text), set_ups[""][1])
        for folder, env in set_ups.values():
            _prepare(folder, env)
        for number in range(RUNS):
            commands[_ENCRYPT] = ["sparkcrypt", "encrypt", "--table", f"default.customers{number}", *policy, "--json"]
            for name, (folder, env) in set_ups.items():
                for command, words in commands.items():
                    costs.setdefault(command + name, []).append(run_whole(words, folder, env)[0])
            sessions.append((_session(*set_ups[""]), _session(*set_ups[""], "policy.yaml")))
    for name in set_ups:
        _add_commands(report, name, costs)
    _add_configure(report, sessions)
    return report


def _session(folder: Path, env: Mapping[str, str], *policy: str) -> _Steps:
    printed = run_whole([sys.executable, "-c", _SESSION, *policy], folder, env)[1]
    steps: _Steps = json.loads(printed.splitlines()[-1])
    return steps


def _add_commands(report: Report, name: str, costs: Mapping[str, Sequence[Cost]]) -> None:
    spark = costs[_SPARK_SQL + name]
    for command in (_SPARK_SQL, "tags set", "plan"):
        report.add(f"{command}{name}, CPU", "s", [cost.cpu for cost in costs[command + name]])
        report.add(f"{command}{name}", "s", [cost.wall for cost in costs[command + name]])
    for command in ("tags set", "plan"):
        pairs = list(zip(costs[command + name], spark, strict=True))
        report.at_most(f"{command} by spark-sql{name}, CPU", "x", [own.cpu / its.cpu for own, its in pairs], CPU_BAR)
        report.at_most(f"{command} by spark-sql{name}", "x", [own.wall / its.wall for own, its in pairs], CLOCK_BAR)
    report.at_most(f"{_ENCRYPT}{name}, CPU", "s", [cost.cpu for cost in costs[_ENCRYPT + name]], ENCRYPT_BAR)
    report.add(f"{_ENCRYPT}{name}", "s", [cost.wall for cost in costs[_ENCRYPT + name]])


def _add_configure(report: Report, rounds: Sequence[tuple[_Steps, _Steps]]) -> None:
    """Add lines of sessions in pairs, of which the second is under a policy.

    The metastore is opened by the first query, with and without a policy: the last line has what ``configure`` adds to
    a session that has come to its first rows.
    """
    report.add("Spark's own start, CPU", "s", [own[0][0] for _, own in rounds])
    report.add("configure, CPU", "s", [own[1][0] for _, own in rounds])
    report.at_most(
        "configure by Spark's own start, CPU", "x", [own[1][0] / own[0][0] for _, own in rounds], CONFIGURE_BAR
    )
    report.add("configure by Spark's own start", "x", [own[1][1] / own[0][1] for _, own in rounds])
    report.add("the first query of a table without a policy, CPU", "s", [plain[2][0] for plain, _ in rounds])
    report.add("the first query of a table after configure, CPU", "s", [own[2][0] for _, own in rounds])
    report.add(
        "start, configure and first query by start and first query without a policy, CPU",
        "x",
        [sum(cpu for cpu, _ in own) / sum(cpu for cpu, _ in plain) for plain, own in rounds],
    )
