"""Submits a job and reads its report; the result of `spark-submit` counts only if there is no report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.exceptions import AirflowException

from sparkcrypt.airflow.reports import KIND, find_report, new_report

ONE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
"""YARN restarts a driver that ended with another exit code than 0, such as a plan's 2 for drift, but only Airflow
should retry."""

Submit = Callable[[list[str]], object]
"""Submits the job with arguments, and returns or raises an error when the job has ended."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A report and its URI."""

    report: dict[str, Any]
    uri: str


def submit_job(
    submit: Submit,
    arguments: Sequence[str],
    context: Mapping[str, Any],
    *,
    folder: str,
    conn_id: str | None,
    kind: str = KIND,
) -> Reported:
    """Submit the job once, and return the report that it wrote.

    Args:
        submit: submits the job.
        arguments: the job's arguments without ``--report``.
        context: Airflow's context of the task.
        folder: the folder of reports.
        conn_id: the connection for object storage, if the folder is there.
        kind: the kind of the report.

    Raises:
        AirflowException: there is no report, so the result is unknown; or it cannot be read.
    """
    uri = new_report(folder, context)
    failure = _failure(submit, [*arguments, "--report", uri])
    report = find_report(uri, conn_id, (kind,))
    if report is not None:
        if failure is not None:
            logging.getLogger(__name__).info("spark-submit ended with an error; the report tells what it means")
        return Reported(report, uri)
    if failure is not None:
        raise AirflowException(f"the job ended and wrote no report to {uri}: {failure}") from failure
    raise AirflowException(
        f"the job ended and wrote no report to {uri}; is report_folder on a file system that the driver writes and "
        "this worker reads, and does spark-submit wait for the application's end?"
    )


def _failure(submit: Submit, arguments: list[str]) -> Exception | None:
    """Submit the job, and return the provider's error if it ended with another exit code than 0."""
    try:
        submit(arguments)
    except FileNotFoundError as error:
        raise AirflowException(
            f"{error.filename} is not on this worker's PATH; install Spark's client here, or name it in the extra "
            "spark-binary of the Spark connection"
        ) from error
    except (AirflowException, RuntimeError) as error:
        return error
    return None
