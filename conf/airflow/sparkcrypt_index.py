"""Example: refresh the stores for data skipping of tables each night.

refresh, a task for each table

Copy it into the DAGs folder and set the parameters below; docs/how-to/airflow.md lists what Airflow and Spark need for
it.
Create a table's store first: `sparkcrypt index create --table T --column COL --policy policy.yaml`.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sparkcrypt.airflow import SparkcryptIndexOperator

try:
    from airflow.sdk import dag, task
except ModuleNotFoundError:  # Airflow 2
    from airflow.decorators import dag, task


@dag(
    schedule="0 5 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    # A failed refresh leaves the store unchanged.
    default_args={"retries": 2},
    params={
        "tables": ["sales.orders"],
        "policy": "/etc/sparkcrypt/policy.yaml",
        "jobs": "/opt/sparkcrypt/jobs",
        "reports": "/mnt/shared/sparkcrypt/reports",
    },
    tags=["sparkcrypt"],
)
def sparkcrypt_index() -> None:
    """Refresh the stores of tables."""

    @task
    def tables(params: dict[str, Any]) -> list[str]:
        """Return the names of the tables."""
        return list(params["tables"])

    SparkcryptIndexOperator.partial(
        task_id="refresh",
        conn_id="spark_default",
        application="{{ params.jobs }}/index_table.py",
        policy="{{ params.policy }}",
        report_folder="{{ params.reports }}",
    ).expand(table=tables())


sparkcrypt_index()
