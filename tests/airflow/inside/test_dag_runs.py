"""A DAG that this Airflow runs, with a spark-submit that only writes reports: for Airflows on which no night is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow.inside.conftest import SparkSubmit, report, table

NIGHT = """
from datetime import datetime, timezone
from sparkcrypt.airflow import database_group
try:
    from airflow.sdk import DAG
except ModuleNotFoundError:
    from airflow.models.dag import DAG

with DAG("night", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
    database_group("sales", database="sales", jobs="jobs", policy="p.yaml", report_folder={reports!r})
"""


def test_dag_runs(spark_submit: SparkSubmit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This Airflow runs the group from end to end, with templates, mapping, XComs and trigger rules of its own."""
    verified = {"kind": "sparkcrypt verify", "version": 1, "outcome": "verified", "verified": True}
    opened = {"kind": "sparkcrypt keys check", "version": 1, "outcome": "done", "tables": []}
    expired = {"kind": "sparkcrypt expire", "version": 1, "outcome": "done", "tables": [], "failed": []}
    done = report(outcome="done", tables=[table(files_rewritten=3)])
    spark_submit.will((done, 0), (verified, 0), (opened, 0), (expired, 0))
    dags, reports = tmp_path / "dags", tmp_path / "reports"
    dags.mkdir()
    (dags / "night.py").write_text(NIGHT.format(reports=str(reports)))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(dags))
    airflow = Path(sys.executable).with_name("airflow")
    ran = subprocess.run(
        [airflow, "dags", "test", "night", "2026-04-01"], capture_output=True, text=True, check=False, timeout=240
    )
    assert len(spark_submit.calls) == 4, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert ran.returncode == 0
    jobs = [call[next(n for n, word in enumerate(call) if word.startswith("jobs/")) :] for call in spark_submit.calls]
    assert [job[0] for job in jobs] == [
        "jobs/backfill.py",
        "jobs/verify_table.py",
        "jobs/check_keys.py",
        "jobs/backfill.py",
    ]
    assert jobs[1][1:3] == ["--table", "sales.orders"] and jobs[3][1] == "expire"
