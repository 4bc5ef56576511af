"""A real Airflow runs the example DAG on a real table, through the project's own spark-submit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import or_skip
from tests.services.airflow import Airflow, start_airflow
from tests.services.installed import ROOT
from tests.spark.support import make_policy

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]
DAG, ROTATION, SHREDDING = "sparkcrypt_nightly", "sparkcrypt_rotate", "sparkcrypt_shred"
INDEXING = "sparkcrypt_index"
SECONDS = 900.0
MAKE = """
import sys
from pyspark.sql import SparkSession
from sparkcrypt.spark.tables.tagging import set_tags

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
days = [f"2026-01-{day:02d}" for day in range(1, 9)] + ["2026-03-31"]
spark.sql("CREATE DATABASE sales")
spark.sql("CREATE TABLE sales.orders (id INT, email STRING, day DATE) USING parquet PARTITIONED BY (day)")
values = ", ".join(f"({n}, 'mail-{n}', DATE '{day}')" for n, day in enumerate(days * 3))
spark.sql(f"INSERT INTO sales.orders SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
set_tags(spark, "sales.orders", {"email": ["pii"]}, None)
"""
LOOK = """
import json
from pyspark.sql import SparkSession
from sparkcrypt import configure, load_policy

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
configure(spark, load_policy("policy.yaml"))
rows = sorted([row.id, row.email, str(row.day)] for row in spark.table("sales.orders").collect())
print(json.dumps({"rows": rows, "files": sorted(spark.table("sales.orders").inputFiles())}))
"""


@dataclass(slots=True)
class Nightly:
    """The example DAG in an Airflow of its own, and the table that it is about, as it was made and is by now."""

    airflow: Airflow
    home: Path
    made: dict[str, Any] = field(default_factory=dict)
    latest: dict[str, Any] = field(default_factory=dict)

    def start(self, date: str, *options: str, dag: str = DAG, **params: Any) -> subprocess.Popen[bytes]:
        """Start one night, or one run of another DAG; its output goes to a file named after the date."""
        conf = {
            "policy": str(self.home / "policy.yaml"),
            "jobs": str(ROOT / "jobs"),
            "reports": str(self.home / "reports"),
            **(params or {"table": "sales.orders", "grace_hours": 0}),
        }
        with self.log(date).open("wb") as log:
            return subprocess.Popen(
                self.airflow.command("dags", "test", dag, date, "--conf", json.dumps(conf), *options),
                cwd=self.home,
                env=dict(self.airflow.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, date: str) -> Path:
        """Return the file of a night's output."""
        return self.home / f"{date}.log"

    def night(
        self, date: str, *options: str, killed: bool = False, **choices: Any
    ) -> dict[tuple[str, int], dict[str, Any]]:
        """Run one night to its end, and return what became of each task by its name and index."""
        running = self.start(date, *options, **choices)
        try:
            if killed:
                kill_driver(self.home, running)
            running.wait(timeout=SECONDS)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        return self.tasks(date)

    def tasks(self, date: str) -> dict[tuple[str, int], dict[str, Any]]:
        """Return state, number of tries and XCom of a night's tasks, from Airflow's database."""
        query = """
            SELECT t.task_id, t.map_index, t.state, t.try_number, x.value
            FROM task_instance t JOIN dag_run r ON (r.dag_id, r.run_id) = (t.dag_id, t.run_id)
            LEFT JOIN xcom x ON x.key = 'return_value' AND (x.dag_id, x.run_id, x.task_id, x.map_index)
                = (t.dag_id, t.run_id, t.task_id, t.map_index)
            WHERE r.logical_date LIKE ?
        """
        with sqlite3.connect(self.airflow.home / "airflow.db") as database:
            found = database.execute(query, (f"{date}%",)).fetchall()
        return {
            (task, index): {"state": state, "tries": tries, "xcom": json.loads(value) if value else None}
            for task, index, state, tries, value in found
        }

    def look(self, script: str = LOOK) -> dict[str, Any]:
        """Return the rows and files of the table as a process of its own finds them, with the Spark that jobs have."""
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=self.home,
            env=dict(self.airflow.env),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        self.latest = dict(json.loads(done.stdout.splitlines()[-1]))
        return self.latest


def kill_driver(home: Path, running: subprocess.Popen[bytes]) -> None:
    """Kill the driver of January's backfill, the JVM and its Python, when its days are staged and not swapped yet."""
    while running.poll() is None:
        files = home.glob("state/log/*/*.json")
        records = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
        staged = {record["run_id"] for record in records if record["kind"] == "unit_staged" and _of_january(record)}
        if staged:
            assert not any(record["kind"] == "run_finished" and record["run_id"] in staged for record in records)
            drivers = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _is_driver(entry, home)]
            assert drivers
            for pid in drivers:
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)
    raise AssertionError("the backfill ended before it could be killed")


def _of_january(record: dict[str, Any]) -> bool:
    return str(record["fields"]["unit"]).startswith("day=2026-01")


def _is_driver(process: Path, home: Path) -> bool:
    try:
        line = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(home / "policy.yaml").encode() in line and b"--where" in line


@pytest.fixture(scope="module")
def nightly(java: dict[str, str], jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Nightly:
    """The example DAG, and a tagged plaintext table of nine days in two months."""
    home = tmp_path_factory.mktemp("nightly")
    conf = {
        "spark.ui.enabled": "false",
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{home / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={home / 'derby.log'}",
    }
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    (home / "conf" / "log4j2.properties").write_text("rootLogger.level = error\n")
    make_policy(home, more="index: {location: indexes/}\n")
    env = {
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARKCRYPT_JAR": str(shutil.copy(jar, home / "sparkcrypt.jar")),
        "PYTHONWARNINGS": "ignore",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
    }
    airflow = or_skip(start_airflow, home / "airflow", env)
    for example in (ROOT / "conf" / "airflow").glob("*.py"):
        shutil.copy(example, airflow.dags)
    running = Nightly(airflow, home)
    running.made = running.look(MAKE + LOOK)
    return running


def test_operators_in_airflows_environment(nightly: Nightly) -> None:
    """The tests below inside/ pass where Airflow can be imported."""
    done = subprocess.run(
        [
            *(nightly.airflow.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/airflow/inside"),
            "--ignore=tests/airflow/inside/test_dag_runs.py",  # for other Airflows; the nights below are such runs
        ],
        cwd=ROOT,
        env=dict(nightly.airflow.env),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


def test_nights(nightly: Nightly) -> None:
    """A night whose driver is killed ends with an encrypted table and no old file; one without drift does nothing."""
    before = nightly.made
    assert len(before["files"]) == 9
    first = nightly.night("2026-04-01", killed=True)
    said = nightly.log("2026-04-01").read_text()[-6000:]
    states = {name: entry["state"] for name, entry in first.items()}
    assert states == {
        ("plan", -1): "success",
        ("months", -1): "success",
        ("backfill", 0): "success",
        ("backfill", 1): "success",
        ("verify", -1): "success",
        ("check_keys", -1): "success",
        ("end_of_grace", -1): "success",
        ("wait_for_readers", -1): "success",
        ("expire", -1): "success",
    }, said
    assert first["months", -1]["xcom"] == [
        "day >= '2026-01-01' AND day < '2026-02-01'",
        "day >= '2026-03-01' AND day < '2026-04-01'",
    ]
    assert first["plan", -1]["xcom"]["drift"] is True
    assert [first["backfill", index]["tries"] for index in (0, 1)] == [2, 1], said
    # March's task may come before January's second try: it then finishes January's run, and does March all the same.
    (january,), (march,) = [first["backfill", index]["xcom"]["tables"] for index in (0, 1)]
    assert (january["files_total"], january["units_left"]) == (8, 0)
    assert (march["files_total"], march["files_rewritten"], march["units_left"]) == (1, 1, 0)
    after = nightly.look()
    assert after["rows"] == before["rows"]
    assert not set(after["files"]) & set(before["files"])
    files = list((nightly.home / "warehouse").rglob("*.parquet"))
    assert {file.name for file in files} == {Path(file).name for file in after["files"]}
    assert len(files) == 9
    assert {file.read_bytes()[:4] for file in files} == {b"PARE"}
    second = nightly.night("2026-04-02", "--mark-success-pattern", "verify|check_keys|expire")
    states = {name: entry["state"] for name, entry in second.items()}
    assert second["plan", -1]["xcom"]["drift"] is False
    skipped = {task for (task, _), state in states.items() if state == "skipped"}
    assert skipped == {"backfill", "end_of_grace", "wait_for_readers"}
    assert (states["verify", -1], states["expire", -1]) == ("success", "success")


def test_rotation(nightly: Nightly) -> None:
    """The example rotates a key wherever it is known to be: other wrapped keys, and the same rows."""
    before = nightly.latest  # nothing has written since
    done = nightly.night("2026-05-01", dag=ROTATION, keys=["pii"])
    said = nightly.log("2026-05-01").read_text()[-6000:]
    assert {name: task["state"] for name, task in done.items()} == {
        ("keys", -1): "success",
        ("rotate", 0): "success",
    }, said
    report = done["rotate", 0]["xcom"]
    (table,) = report["tables"]
    assert (report["rotation"]["made"], table["files_rewritten"], report["drift"]) == (True, 9, False)
    after = nightly.look()
    assert after["rows"] == before["rows"]
    assert not set(after["files"]) & set(before["files"])


ADD_ROWS = """
import json
from pyspark.sql import SparkSession
from sparkcrypt import index_table, load_policy

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
policy = load_policy("policy.yaml")
made = index_table(spark, "sales.orders", policy, columns=["id", "email:bloom"])
spark.sql("INSERT INTO sales.orders SELECT /*+ COALESCE(1) */ 90, 'mail-90', DATE '2026-03-30'")
print(json.dumps({"objects": made.objects}))
"""


def test_stores_are_refreshed(nightly: Nightly) -> None:
    """The example refreshes a store: what a writer added since it was made is read, and no more."""
    objects = nightly.look(ADD_ROWS)["objects"]
    time.sleep(2.5)  # younger files are left out
    done = nightly.night("2026-04-15", dag=INDEXING, tables=["sales.orders"])
    said = nightly.log("2026-04-15").read_text()[-6000:]
    assert {name: task["state"] for name, task in done.items()} == {
        ("tables", -1): "success",
        ("refresh", 0): "success",
    }, said
    report = done["refresh", 0]["xcom"]
    assert (report["kind"], report["outcome"], report["table"]) == ("sparkcrypt index", "done", "sales.orders")
    assert (report["read"], report["objects"], report["generation"], report["written"]) == (1, objects + 1, 2, True)
