"""What a report means for a task: whether it failed and why, whether files differ, whether a run was continued."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from airflow.exceptions import AirflowException

_SHOWN = 5
_RUN_BEGAN = re.compile(r"(\d{8}T\d{6})Z-")


def check_report(report: Mapping[str, Any], uri: str, *, dry_run: bool, allow_incomplete: bool) -> None:
    """See that a report is of the pass that was asked for, and that all of it was done.

    Args:
        report: the whole one.
        uri: where it is, for messages.
        dry_run: what was asked for.
        allow_incomplete: units and tables that could not be done are the next task's business.

    Raises:
        AirflowException: the job failed, or left something out; the message says what and why.
    """
    outcome, error = report.get("outcome"), report.get("error")
    if error or outcome == "failed":
        error = error or {}
        raise AirflowException(
            f"sparkcrypt failed: {error.get('type', 'no type')}: {error.get('message', 'no message')} "
            f"(exit code {error.get('exit_code', 'not known')}; report {uri})"
        )
    if (outcome == "dry run") != dry_run:
        raise AirflowException(
            f"report {uri}: its outcome is {outcome!r}, which is not that of a {'plan' if dry_run else 'backfill'}"
        )
    problems = list(_problems(report)) or (["it does not say what"] if outcome == "incomplete" else [])
    if problems and not allow_incomplete:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise AirflowException(
            f"sparkcrypt could not do everything: {'; '.join(problems[:_SHOWN])}{more} (report {uri}); what is named "
            "is as it was, the rest is done; the next try takes up what is left"
        )


def drifts(report: Mapping[str, Any]) -> bool:
    """Tell whether files differ from their plan."""
    return any(table.get("units_left") for table in report.get("tables", ()))


def continued_another(report: Mapping[str, Any]) -> bool:
    """Tell whether a run of the pass had begun before the pass.

    Such a run goes on with the partitions for which it was begun, which may be others than those asked for now.
    """
    started = datetime.fromisoformat(str(report["started"])).astimezone(timezone.utc)
    begun = [_RUN_BEGAN.match(str(table.get("run_id"))) for table in report.get("tables", ())]
    return any(match is not None and match[1] < f"{started:%Y%m%dT%H%M%S}" for match in begun)


def _problems(report: Mapping[str, Any]) -> Iterator[str]:
    for one in report.get("failed", ()):
        yield f"{one['table']}: {one['error']}: {one['message']}"
    for one in report.get("refused", ()):
        yield f"{one['table']} was refused: {one['reason']}"
    for table in report.get("tables", ()):
        for one in table.get("quarantined", ()):
            yield f"{table['table']}, {one['unit']}: {one['error']}: {one['message']}"
