"""Decides by a job's report whether the task failed and why, and whether files differ from their plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.exceptions import AirflowException

_SHOWN = 5
_REST = {
    False: "what is named is as it was, the rest is done; the next try takes up what is left",
    True: "the drift of others is told, and nothing was changed",
}


def check_report(report: Mapping[str, Any], uri: str, *, dry_run: bool, allow_incomplete: bool) -> None:
    """Check that a report belongs to the requested kind of pass, and that the pass did everything.

    Args:
        report: the complete report.
        uri: its URI, for messages.
        dry_run: whether a dry run was requested.
        allow_incomplete: accept units and tables that could not be done.

    Raises:
        AirflowException: the job failed, or was incomplete; the message has the reasons.
    """
    outcome = _check_outcome(report, uri, "plan" if dry_run else "backfill", dry_run=dry_run)
    problems = list(_problems(report)) or (["it does not say what"] if outcome == "incomplete" else [])
    if problems and not allow_incomplete:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise AirflowException(
            f"sparkcrypt could not {'plan' if dry_run else 'do'} everything: {'; '.join(problems[:_SHOWN])}{more} "
            f"(report {uri}); {_REST[dry_run]}"
        )


def check_shredding(report: Mapping[str, Any], uri: str, *, plans: bool, allow_incomplete: bool) -> None:
    """Check that a report belongs to the requested kind of shredding, and that nothing was refused.

    Args:
        report: the complete report.
        uri: its URI, for messages.
        plans: whether only a plan was requested.
        allow_incomplete: accept refused keys and tables that could not be scanned; holds are never a failure.

    Raises:
        AirflowException: the job failed, or refused a key; the message names it and the reason.
    """
    _check_outcome(report, uri, "plan" if plans else "shredding", dry_run=plans)
    problems = list(_find_refused(report))
    if problems and not allow_incomplete:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        rest = "nothing was changed" if plans else "the other keys that were due are gone"
        raise AirflowException(
            f"sparkcrypt refused to shred: {'; '.join(problems[:_SHOWN])}{more} (report {uri}); {rest}"
        )


def check_indexing(report: Mapping[str, Any], uri: str) -> None:
    """Check that a report belongs to a store that was created or refreshed.

    Args:
        report: the complete report.
        uri: its URI, for messages.

    Raises:
        AirflowException: the job failed; the store is unchanged.
    """
    _check_outcome(report, uri, "store", dry_run=False)


def is_due(report: Mapping[str, Any]) -> bool:
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


def drifts(report: Mapping[str, Any]) -> bool:
    """Tell whether, by a report, files differ from their plan."""
    return any(table.get("units_left") for table in report.get("tables", ()))


def _problems(report: Mapping[str, Any]) -> Iterator[str]:
    for entry in report.get("failed", ()):
        yield f"{entry['table']}: {entry['error']}: {entry['message']}"
    for entry in report.get("refused", ()):
        yield f"{entry['table']} was refused: {entry['reason']}"
    for table in report.get("tables", ()):
        for entry in table.get("quarantined", ()):
            yield f"{table['table']}, {entry['unit']}: {entry['error']}: {entry['message']}"
