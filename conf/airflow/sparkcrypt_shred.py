"""Example: list the master keys that are past their retention each month, and shred them once a reason is given.

plan -> confirmed -> shred

A scheduled run only plans. After reading its plan, an operator triggers the DAG with `reason`, and with `head` from the
plan's XCom or from elsewhere. Copy it into the DAGs folder and set the parameters below; docs/how-to/airflow.md
lists what Airflow and Spark need for it. Shredding cannot be undone: see docs/keys.md.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sparkcrypt.airflow import SparkcryptShredOperator

try:
    from airflow.sdk import dag, task
except ModuleNotFoundError:  # Airflow 2
    from airflow.decorators import dag, task


@dag(
    schedule="0 4 2 * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    # A retry resumes what the first try began.
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
    """Plan, and shred the keys that are due if a reason was given."""
    where = {
        "conn_id": "spark_default",
        "application": "{{ params.jobs }}/shred_keys.py",
        "policy": "{{ params.policy }}",
        "report_folder": "{{ params.reports }}",
        "head": "{{ params.head }}",
    }
    plan = SparkcryptShredOperator(task_id="plan", **where)

    @task.short_circuit
    def confirmed(found: dict[str, Any], params: dict[str, Any]) -> bool:
        """Tell whether a key is due and a reason was given."""
        return bool(found["due"] and params["reason"].strip())

    shred = SparkcryptShredOperator(task_id="shred", apply=True, reason="{{ params.reason }}", **where)
    confirmed(found=plan.output) >> shred


sparkcrypt_shred()
