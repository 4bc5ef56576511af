"""A task group that brings a database to its tags, proves it, and deletes old files, for a DAG of any schedule."""

from __future__ import annotations

from typing import Any

from sparkcrypt.airflow.operators import (
    SparkcryptBackfillOperator,
    SparkcryptCheckKeysOperator,
    SparkcryptExpireOperator,
    SparkcryptVerifyOperator,
)
from sparkcrypt.airflow.reports import read_report
from sparkcrypt.airflow.versions import TaskGroup, task


def database_group(
    group_id: str, *, database: str, jobs: str, older_than: str | None = None, **arguments: Any
) -> TaskGroup:
    """Return a task group for all tables of a database: backfill, verify what was rewritten, check keys, expire.

    backfill -> rewritten -> verify, a task for each table that was rewritten -> check_keys -> expire

    `verify` is skipped on nights in which nothing was rewritten, the rest runs.  Old files go when the grace of their
    own run is over, so those of one night go in a later one.  Give the DAG ``max_active_runs=1``, since only one run at
    a time can work on a table.

    Args:
        group_id: the name of the group, which the ids of its tasks begin with.
        database: the database.
        jobs: the folder that `sparkcrypt jobs` prints, as ``spark-submit`` opens it.
        older_than: how long old files stay after their run, such as ``12h``; the policy's grace by default.
        **arguments: arguments of all operators: ``policy`` and ``report_folder``, those of ``SparkSubmitOperator``,
            and of the backfill ``options``.

    Example:
        A DAG for two databases, one after the other::

            sales = database_group("sales", database="sales", jobs=JOBS, policy=POLICY, report_folder=REPORTS)
            people = database_group("people", database="hr", jobs=JOBS, policy=POLICY, report_folder=REPORTS)
            sales >> people
    """
    folder = jobs.rstrip("/")
    options = arguments.pop("options", ())
    report_conn_id = arguments.get("report_conn_id")
    with TaskGroup(group_id) as group:
        backfill = SparkcryptBackfillOperator(
            task_id="backfill",
            application=f"{folder}/backfill.py",
            database=database,
            changed=True,
            options=options,
            **arguments,
        )

        def rewritten(report: dict[str, Any]) -> list[str]:
            """Return the tables that the backfill has rewritten; the XCom has only the first, its report all."""
            tables = read_report(report["report"], report_conn_id)["tables"]
            return [table["table"] for table in tables if table.get("files_rewritten")]

        verify = SparkcryptVerifyOperator.partial(
            task_id="verify", application=f"{folder}/verify_table.py", **arguments
        ).expand(table=task(rewritten)(backfill.output))
        check_keys = SparkcryptCheckKeysOperator(
            task_id="check_keys",
            application=f"{folder}/check_keys.py",
            database=database,
            trigger_rule="none_failed",
            **arguments,
        )
        expire = SparkcryptExpireOperator(
            task_id="expire",
            application=f"{folder}/backfill.py",
            database=database,
            options=("--older-than", older_than) if older_than else (),
            trigger_rule="none_failed",
            **arguments,
        )
        verify >> check_keys >> expire
    return group
