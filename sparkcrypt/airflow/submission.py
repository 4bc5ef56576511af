"""One submission and its report: what `spark-submit` says of a job's end counts only where there is no report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.exceptions import AirflowException

from sparkcrypt.airflow.reports import KIND, find_report, new_report

ONE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
"""YARN starts a driver again that ended with another code than 0, a plan's 2 for drift included; trying again is
Airflow's business."""

Submit = Callable[[list[str]], object]
"""Submits the job with arguments, and returns or raises when it has ended."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A report and where it is."""

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
        submit: does it.
        arguments: of the job, without its report.
        context: Airflow's.
        folder: of reports.
        conn_id: the connection for object storage, where the folder is there.
        kind: of the report.

    Raises:
        AirflowException: there is no report, so nobody knows what was done; or it cannot be read.
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
    """Return what the provider raises when a job ended with another code than 0."""
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
