"""Example: give master keys a new version each month, and rewrap the data keys of every file that uses them.

rotate, a task for each key

Copy it into the DAGs folder and set the parameters below; docs/how-to/airflow.md lists what Airflow and Spark need for
it.
`sparkcrypt keys status` shows which keys are due (`rotate_every` in the policy).
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sparkcrypt.airflow import SparkcryptRotateOperator

try:
    from airflow.sdk import dag, task
except ModuleNotFoundError:  # Airflow 2
    from airflow.decorators import dag, task


@dag(
    schedule="0 3 1 * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    # A retry resumes under the version that the first try made.
    default_args={"retries": 3},
    params={
        "keys": ["pii"],
        "policy": "/etc/sparkcrypt/policy.yaml",
        "jobs": "/opt/sparkcrypt/jobs",
        "reports": "/mnt/shared/sparkcrypt/reports",
    },
    tags=["sparkcrypt"],
)
def sparkcrypt_rotate() -> None:
    """Rotate keys one after another, since only one run at a time can work on a table."""

    @task
    def keys(params: dict[str, Any]) -> list[str]:
        """Return the ids of the keys."""
        return list(params["keys"])

    SparkcryptRotateOperator.partial(
        task_id="rotate",
        max_active_tis_per_dagrun=1,
        conn_id="spark_default",
        application="{{ params.jobs }}/rotate_keys.py",
        policy="{{ params.policy }}",
        report_folder="{{ params.reports }}",
        # The driver stops before the day's work begins; the next try, or the next month's, resumes.
        options=["--max-duration", "4h"],
    ).expand(key=keys())


sparkcrypt_rotate()
