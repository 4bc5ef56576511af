"""Names, reads and judges the reports of jobs, which give a task the result of its submission: exit codes may be lost.

Each submission writes a report with a new unique name, so an older report is never read in its place.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow.exceptions import AirflowException

KIND, SHRED, INDEX, VERSION = "sparkcrypt backfill", "sparkcrypt shred", "sparkcrypt index", 1
"""The kinds of reports, for passes and rotations, for shreddings, and for stores for data skipping; their version."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NAME_CHARACTERS = 60
_SHOWN = 5
_JOBS = {KIND: "backfill", SHRED: "shredding", INDEX: "store"}
_REST = {
    False: "what is named is as it was, the rest is done; the next try takes up what is left",
    True: "the drift of others is told, and nothing was changed",
}


def new_report(folder: str, context: Mapping[str, Any]) -> str:
    """Return the URI of a report for one submission, named after the task and its try.

    A local folder is created if it does not exist.

    Args:
        folder: path or URI of the folder.
        context: Airflow's context of the task.

    Raises:
        AirflowException: no folder was given, or it cannot be made.
    """
    if not str(folder or "").strip():
        raise AirflowException("report_folder is empty; name a folder that the driver writes and this worker reads")
    if _is_local(folder):
        path = _local_path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AirflowException(
                f"report_folder {folder}: cannot be made here ({error.strerror}); name a folder that the driver writes "
                "and this worker reads"
            ) from error
    task = context["ti"]
    parts = [task.dag_id, task.task_id, task.run_id, str(task.map_index), str(task.try_number), secrets.token_hex(4)]
    name = ".".join(re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:_NAME_CHARACTERS] for part in parts)
    return f"{folder.rstrip('/')}/{name}.json"


def read_report(uri: str, conn_id: str | None = None) -> dict[str, Any]:
    """Read a complete report; its URI is in the XCom of a task under the key ``report``.

    Args:
        uri: a path, or a URI that Airflow's object storage can open.
        conn_id: the connection for object storage.

    Raises:
        AirflowException: it does not exist, cannot be read, or is not the report of a job.
    """
    found = find_report(uri, conn_id, (KIND, SHRED, INDEX))
    if found is None:
        raise AirflowException(f"report {uri}: is not there")
    return found


def find_report(uri: str, conn_id: str | None = None, kinds: Sequence[str] = (KIND,)) -> dict[str, Any] | None:
    """Read a report of one of these kinds, like `read_report`; return None if it does not exist."""
    try:
        text = _text(uri, conn_id)
    except FileNotFoundError:
        return None
    except (OSError, ImportError, ValueError) as error:
        raise AirflowException(
            f"report {uri}: cannot be read from here ({type(error).__name__}: {_first_line(error)}); name a folder "
            "that the driver writes and this worker reads; for object storage install its Airflow provider, and name "
            "its connection in report_conn_id"
        ) from error
    try:
        report = json.loads(text)
    except ValueError as error:
        raise AirflowException(f"report {uri}: is not JSON; was it cut off?") from error
    if not isinstance(report, dict) or report.get("kind") not in kinds or report.get("version") != VERSION:
        wanted = " or ".join(kinds)
        raise AirflowException(f"report {uri}: is not a report of {wanted}, version {VERSION}; name one that is")
    return report


def shorten_report(report: Mapping[str, Any], items: int) -> dict[str, Any]:
    """Return a report for an XCom, with the first entries of each list and the number of those left out.

    Args:
        report: the complete report.
        items: maximum number of entries of each list.
    """
    short: dict[str, Any] = {}
    for name, value in report.items():
        if name == "throughput":  # data of a chart, which tasks do not need
            continue
        short[name] = _shorten_value(value, items)
        if isinstance(value, list) and len(value) > items:
            short[f"{name}_left_out"] = len(value) - items
    return short


def _shorten_value(value: Any, items: int) -> Any:
    if isinstance(value, Mapping):
        return shorten_report(value, items)
    return [_shorten_value(entry, items) for entry in value[:items]] if isinstance(value, list) else value


def _text(uri: str, conn_id: str | None) -> str:
    if _is_local(uri):
        return _local_path(uri).read_text(encoding="utf-8")
    from airflow.sdk import ObjectStoragePath

    return str(ObjectStoragePath(uri, conn_id=conn_id).read_bytes(), "utf-8")


def _is_local(uri: str) -> bool:
    return uri.startswith("file:") or _URI.match(uri) is None


def _local_path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path)) if uri.startswith("file:") else Path(uri)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


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
