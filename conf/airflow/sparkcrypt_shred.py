"""Example: each month, tell which master keys are past their retention; shred them when somebody gives a reason.

plan -> confirmed -> shred

A scheduled run only plans. Who has read its plan triggers the DAG with `reason`, and with `head`: that of the plan's
XCom, or one that was kept elsewhere. Copy it into the DAGs folder and set the parameters below; docs/deploy.md tells
what Airflow and Spark need for it. There is no way back from shredding: docs/keys.md says what it does.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.sdk import dag, task

from sparkcrypt.airflow import SparkcryptShredOperator


@dag(
    schedule="0 4 2 * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    # A try goes on with what the first one began.
    default_args={"retries": 2},
    params={
        "reason": "",
        "head": "",
        "policy": "/etc/sparkcrypt/policy.yaml",
        "jobs": "/opt/sparkcrypt/jobs",
        "reports": "/mnt/shared/sparkcrypt/reports",
    },
    tags=["sparkcrypt"],
)
def sparkcrypt_shred() -> None:
    """Plan, and shred what is due where a person said why."""
    where = {
        "conn_id": "spark_default",
        "application": "{{ params.jobs }}/shred_keys.py",
        "policy": "{{ params.policy }}",
        "report_folder": "{{ params.reports }}",
        "head": "{{ params.head }}",
    }
    plan = SparkcryptShredOperator(task_id="plan", **where)

    @task.short_circuit
    def confirmed(params: dict[str, Any], found: dict[str, Any]) -> bool:
        """Tell whether a key is due, and somebody gave a reason."""
        return bool(found["due"] and params["reason"].strip())

    shred = SparkcryptShredOperator(task_id="shred", apply=True, reason="{{ params.reason }}", **where)
    confirmed(found=plan.output) >> shred


sparkcrypt_shred()
