"""Judges reports: whether a job did what its task asked for, and what the task tells others of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.exceptions import AirflowException

from sparkcrypt.airflow.reports import BACKFILL, CHECK, EXPIRE, INDEX, RESOLVE, SHRED, STATUS, VERIFY

_SHOWN = 5
_JOBS = {
    BACKFILL: "a backfill",
    SHRED: "a shredding",
    INDEX: "a store",
    VERIFY: "a verification",
    EXPIRE: "an expiry",
    RESOLVE: "a resolution",
    CHECK: "a check of keys",
    STATUS: "a status",
}
_FAILED = {
    SHRED: "refused to shred",
    VERIFY: "found what is not as it must be",
    EXPIRE: "left old files",
    CHECK: "could not open everything",
}
_REST = {
    BACKFILL: "what is named is as it was, the rest is done; the next try takes up what is left",
    SHRED: "the other keys that were due are gone",
    VERIFY: "nothing was changed",
    EXPIRE: "the other old files are gone",
    RESOLVE: "the problem is resolved, and the next backfill takes up what is left",
    CHECK: "nothing was changed",
}


def judge_report(report: Mapping[str, Any], uri: str, *, dry_run: bool, allow_incomplete: bool) -> dict[str, Any]:
    """Check that a report belongs to the requested kind of job, and that the job did everything.

    Args:
        report: the complete report.
        uri: its URI, for messages.
        dry_run: whether a plan or dry run was requested.
        allow_incomplete: accept what could not be done, was refused, or differs; holds are never a failure.

    Returns:
        What the report means: ``drift`` of a backfill, ``due`` of a planned shredding, and of a status ``open``, the
        number of open problems and of tables that lost tags.

    Raises:
        AirflowException: the job failed, or was incomplete; the message has the reasons.
    """
    kind = report["kind"]
    outcome = _check_outcome(report, uri, "a plan" if dry_run else _JOBS[kind], dry_run=dry_run)
    problems = list(_find_problems(report))
    if not problems and outcome in ("incomplete", "drift"):
        problems = ["it does not say what"]
    if problems and not allow_incomplete:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        named = f"{'; '.join(problems[:_SHOWN])}{more} (report {uri})"
        failure, rest = _describe_failure(kind, dry_run), _describe_rest(kind, dry_run)
        raise AirflowException(f"sparkcrypt {failure}: {named}; {rest}")
    if kind == SHRED and dry_run:
        return {"due": _is_due(report)}
    if kind == BACKFILL:
        return {"drift": any(table.get("units_left") for table in report.get("tables", ()))}
    if kind == STATUS:
        totals = report["totals"]
        return {"open": totals["problems"] + totals["tags_lost"]}
    return {}


def _describe_failure(kind: str, dry_run: bool) -> str:
    return _FAILED.get(kind, f"could not {'plan' if dry_run else 'do'} everything")


def _describe_rest(kind: str, dry_run: bool) -> str:
    if not dry_run:
        return _REST[kind]
    return "the drift of others is told, and nothing was changed" if kind == BACKFILL else "nothing was changed"


def _find_problems(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a job could not do, refused or found, a line each."""
    kind = report["kind"]
    if kind == BACKFILL:
        yield from _find_undone(report)
    elif kind == SHRED:
        yield from _find_refused(report)
    elif kind == VERIFY:
        yield from _find_differences(report)
    elif kind == EXPIRE:
        yield from _find_kept(report)
    elif kind == CHECK:
        for table in report.get("tables", ()):
            yield from (f"{entry['file']}: {entry['error']}: {entry['message']}" for entry in table["unopened"])
    elif kind == RESOLVE:
        run = report.get("run") or {}
        yield from (f"{entry['unit']}: {entry['error']}: {entry['message']}" for entry in run.get("quarantined", ()))


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
        raise AirflowException(f"report {uri}: its outcome is {outcome!r}, which is not that of {what}")
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


def _find_undone(report: Mapping[str, Any]) -> Iterator[str]:
    for entry in report.get("failed", ()):
        yield f"{entry['table']}: {entry['error']}: {entry['message']}"
    for entry in report.get("refused", ()):
        yield f"{entry['table']} was refused: {entry['reason']}"
    for table in report.get("tables", ()):
        for entry in table.get("quarantined", ()):
            yield f"{table['table']}, {entry['unit']}: {entry['error']}: {entry['message']}"


def _find_differences(report: Mapping[str, Any]) -> Iterator[str]:
    if report.get("outcome") != "drift":
        return
    for entry in report.get("drift", ()):
        column = f"{entry['column']}: " if entry.get("column") else ""
        yield f"{entry['file']}: {column}{entry['kind']}: {entry['detail']}"
    listed = report.get("manifest") or {}
    for what in ("missing", "changed"):
        yield from (f"{file}: {what}" for file in listed.get(what, ()))
    for entry in report.get("lacks_tagged_columns", ()):
        yield f"{entry['file']}: lacks {', '.join(entry['columns'])}"


def _find_kept(report: Mapping[str, Any]) -> Iterator[str]:
    for entry in report.get("failed", ()):
        yield f"{entry['table']}: {entry['error']}: {entry['message']}"
    for table in report.get("tables", ()):
        yield from (f"{table['table']}: {reason}" for reason in (*table["refused"].values(), *table["unread"]))
