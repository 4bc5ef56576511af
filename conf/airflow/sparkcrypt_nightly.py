"""Example: backfill a partitioned table each night, so that its files match its tags and the policy.

plan -> backfill, a task for each month that differs -> verify, check keys -> wait until readers have ended -> expire

A night without drift still expires what earlier nights left.

Copy it into the DAGs folder and set the parameters below; docs/how-to/airflow.md lists what Airflow and Spark need for
it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from sparkcrypt.airflow import (
    SparkcryptBackfillOperator,
    SparkcryptCheckKeysOperator,
    SparkcryptExpireOperator,
    SparkcryptPlanOperator,
    SparkcryptVerifyOperator,
    read_report,
)

try:
    from airflow.providers.standard.sensors.date_time import DateTimeSensor
    from airflow.sdk import dag, task
except ModuleNotFoundError:  # Airflow 2
    from airflow.decorators import dag, task
    from airflow.sensors.date_time import DateTimeSensor

JOB: dict[str, Any] = {
    "conn_id": "spark_default",
    # Memory for the native engine's workers on YARN and Kubernetes: Python processes beside the JVM.
    "conf": {"spark.executor.memoryOverhead": "1g"},
    "table": "{{ params.table }}",
    "policy": "{{ params.policy }}",
    # The driver writes reports there and Airflow's worker reads them, so both must have access to the file system.
    "report_folder": "{{ params.reports }}",
}
BACKFILL: dict[str, Any] = {**JOB, "application": "{{ params.jobs }}/backfill.py"}

NO_DATE = "__HIVE_DEFAULT_PARTITION__"


@dag(
    schedule="0 1 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,  # only one run at a time can work on a table
    # Airflow's default_task_retry_delay, five minutes, is longer than the lock of a killed driver lasts, two minutes.
    default_args={"retries": 3},
    params={
        "table": "sales.orders",
        "month_of": "day",  # a partition column of dates
        "policy": "/etc/sparkcrypt/policy.yaml",
        "jobs": "/opt/sparkcrypt/jobs",
        "reports": "/mnt/shared/sparkcrypt/reports",
        "grace_hours": 12,  # hours after the last swap in which readers may still use old files
    },
    tags=["sparkcrypt"],
)
def sparkcrypt_nightly() -> None:
    """Plan, backfill by month, verify, check that every file opens with the keys at hand, expire."""
    plan = SparkcryptPlanOperator(task_id="plan", **BACKFILL)

    @task
    def months(report: dict[str, Any], params: dict[str, Any]) -> list[str]:
        """Return a predicate for each month with files that differ; without any the backfill is skipped."""
        column = params["month_of"]
        # The XCom has only the first units; the report that it names has all.
        units = [unit["unit"] for table in read_report(report["report"])["tables"] for unit in table["planned"]]
        values = {dict(part.split("=", 1) for part in unit.split("/"))[column] for unit in units}
        undated = [f"{column} IS NULL"] if NO_DATE in values else []
        starts = {datetime.fromisoformat(value).replace(day=1) for value in values - {NO_DATE}}
        return [*(_between(column, month) for month in sorted(starts)), *undated]

    backfill = SparkcryptBackfillOperator.partial(task_id="backfill", max_active_tis_per_dagrun=1, **BACKFILL).expand(
        where=months(plan.output)
    )

    verify = SparkcryptVerifyOperator(
        task_id="verify",
        application="{{ params.jobs }}/verify_table.py",
        trigger_rule="none_failed",  # runs also if there was nothing to do
        **JOB,
    )
    check_keys = SparkcryptCheckKeysOperator(
        task_id="check_keys", application="{{ params.jobs }}/check_keys.py", trigger_rule="none_failed", **JOB
    )

    @task
    def end_of_grace(params: dict[str, Any]) -> str:
        """Return when the grace of readers is over; every swap of this night was made before this task began."""
        return (datetime.now(timezone.utc) + timedelta(hours=params["grace_hours"])).isoformat()

    grace = end_of_grace()
    wait = DateTimeSensor(
        task_id="wait_for_readers",
        target_time="{{ ti.xcom_pull(task_ids='end_of_grace') }}",
        mode="reschedule",
        poke_interval=600,
    )
    expire = SparkcryptExpireOperator(
        task_id="expire",
        # Counted for each run from its last swap, so a run that somebody else made meanwhile keeps its old files.
        options=["--older-than", "{{ params.grace_hours }}h"],
        trigger_rule="none_failed",
        **BACKFILL,
    )
    backfill >> verify >> check_keys >> expire
    backfill >> grace >> wait >> expire  # grace and wait are skipped if the backfill is


def _between(column: str, month: datetime) -> str:
    following = (month + timedelta(days=31)).replace(day=1)
    return f"{column} >= '{month:%Y-%m-%d}' AND {column} < '{following:%Y-%m-%d}'"


sparkcrypt_nightly()
