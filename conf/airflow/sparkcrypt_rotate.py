"""Example: each month, give master keys a new version and rewrap the data keys of every file that holds them.

rotate, a task for each key

Copy it into the DAGs folder and set the parameters below; docs/deploy.md tells what Airflow and Spark need for it.
`sparkcrypt keys status` shows which keys are due (`rotate_every` in the policy).
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.sdk import dag, task

from sparkcrypt.airflow import SparkcryptRotateOperator


@dag(
    schedule="0 3 1 * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    # A try goes on under the version that the first one made.
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
    """Rotate keys, one after the other: one run at a time works on a table."""

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
        # The driver ends in time for the day's work; the next try, or the next month, goes on.
        options=["--max-duration", "4h"],
    ).expand(key=keys())


sparkcrypt_rotate()
