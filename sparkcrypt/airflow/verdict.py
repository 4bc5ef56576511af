"""Decides by a job's report whether the task failed and why, and whether files differ from their plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.exceptions import AirflowException

from sparkcrypt.airflow.reports import INDEX, KIND, SHRED

_SHOWN = 5
_JOBS = {KIND: "backfill", SHRED: "shredding", INDEX: "store"}
_REST = {
    False: "what is named is as it was, the rest is done; the next try takes up what is left",
    True: "the drift of others is told, and nothing was changed",
}


def judge_report(report: Mapping[str, Any], uri: str, *, dry_run: bool, allow_incomplete: bool) -> dict[str, Any]:
    """Check that a report belongs to the requested kind of job, and that the job did everything.

    Args:
        report: the complete report.
        uri: its URI, for messages.
        dry_run: whether a plan or dry run was requested.
        allow_incomplete: accept units and tables that could not be done, and refused keys; holds are never a failure.

    Returns:
        What the report means: ``drift``, or ``due`` of a planned shredding.

    Raises:
        AirflowException: the job failed, or was incomplete; the message has the reasons.
    """
    kind = report["kind"]
    outcome = _check_outcome(report, uri, "plan" if dry_run else _JOBS[kind], dry_run=dry_run)
    if kind == INDEX:
        return {}
    if kind == SHRED:
        problems, failed = list(_find_refused(report)), "refused to shred"
        rest = "nothing was changed" if dry_run else "the other keys that were due are gone"
    else:
        problems = list(_problems(report)) or (["it does not say what"] if outcome == "incomplete" else [])
        failed, rest = f"could not {'plan' if dry_run else 'do'} everything", _REST[dry_run]
    if problems and not allow_incomplete:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise AirflowException(f"sparkcrypt {failed}: {'; '.join(problems[:_SHOWN])}{more} (report {uri}); {rest}")
    if kind == SHRED:
        return {"due": _is_due(report)} if dry_run else {}
    return {"drift": any(table.get("units_left") for table in report.get("tables", ()))}


def _is_due(report: Mapping[str, Any]) -> bool:
    """Tell whether a plan has a key that would be shredded."""
    return any(not key.get("holds") and not key.get("refused") for key in report.get("keys", ()))


def _check_outcome(report: Mapping[str, Any], uri: str, what: str, *, dry_run: bool) -> Any:
    """Return the outcome of a report, after checking that the job did what was requested.

    Raises:
        AirflowException: the job failed, or ran as a plan although it should not, or the reverse.
    """
    outcome, error = report.get("outcome"), report.get("error")
    if error or outcome == "failed":
        error = error or {}
        raise AirflowException(
            f"sparkcrypt failed: {error.get('type', 'no type')}: {error.get('message', 'no message')} "
            f"(exit code {error.get('exit_code', 'not known')}; report {uri})"
        )
    if (outcome == "dry run") != dry_run:
        raise AirflowException(f"report {uri}: its outcome is {outcome!r}, which is not that of a {what}")
    return outcome


def _find_refused(report: Mapping[str, Any]) -> Iterator[str]:
    for key in (*report.get("keys", ()), *report.get("kept", ())):
        for reason in key.get("refused", ()):
            yield f"{key['key_id']}: {reason}"
    for entry in report.get("left", ()):
        yield f"{entry['key_id']}: {entry['reason']}"
    for entry in report.get("not_scanned", ()):
        yield f"{entry['table']}: {entry['reason']}"
    yield from report.get("doubts", ())


def _problems(report: Mapping[str, Any]) -> Iterator[str]:
    for entry in report.get("failed", ()):
        yield f"{entry['table']}: {entry['error']}: {entry['message']}"
    for entry in report.get("refused", ()):
        yield f"{entry['table']} was refused: {entry['reason']}"
    for table in report.get("tables", ()):
        for entry in table.get("quarantined", ()):
            yield f"{table['table']}, {entry['unit']}: {entry['error']}: {entry['message']}"
