"""Names, reads and awaits the reports of jobs, and links tasks to them: exit codes of submissions may be lost.

Each submission writes a report with a new unique name, so an older report is never read in its place.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow.exceptions import AirflowException
from airflow.plugins_manager import AirflowPlugin
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sparkcrypt.airflow.versions import BaseOperatorLink, ObjectStoragePath, XCom

BACKFILL, SHRED, INDEX, VERIFY = "sparkcrypt backfill", "sparkcrypt shred", "sparkcrypt index", "sparkcrypt verify"
EXPIRE, RESOLVE, CHECK, STATUS = (
    "sparkcrypt expire",
    "sparkcrypt resolve",
    "sparkcrypt keys check",
    "sparkcrypt status",
)
KINDS = (BACKFILL, SHRED, INDEX, VERIFY, EXPIRE, RESOLVE, CHECK, STATUS)
"""The kinds of reports; that of a rotation is a backfill's."""
VERSION = 1
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NAME_CHARACTERS = 60


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
    found = find_report(uri, conn_id, KINDS)
    if found is None:
        raise AirflowException(f"report {uri}: is not there")
    return found


def find_report(uri: str, conn_id: str | None = None, kinds: Sequence[str] = (BACKFILL,)) -> dict[str, Any] | None:
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
    return str(ObjectStoragePath(uri, conn_id=conn_id).read_bytes(), "utf-8")


def _is_local(uri: str) -> bool:
    return uri.startswith("file:") or _URI.match(uri) is None


def _local_path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path)) if uri.startswith("file:") else Path(uri)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


class ReportTrigger(BaseTrigger):
    """Fires when a report is there, with its URI; until then the task needs no worker.

    Args:
        uri: path or URI of the report, which the triggerer reads.
        conn_id: the connection for object storage.
        poll_seconds: how long it waits between two looks.
    """

    def __init__(self, uri: str, conn_id: str | None = None, poll_seconds: float = 60.0) -> None:
        super().__init__()
        self.uri, self.conn_id, self.poll_seconds = uri, conn_id, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments with which a triggerer makes it again."""
        values = {"uri": self.uri, "conn_id": self.conn_id, "poll_seconds": self.poll_seconds}
        return f"{type(self).__module__}.{type(self).__qualname__}", values

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look for the report until it is whole; one that cannot be read is left to the task to tell."""
        while True:
            try:
                found = await asyncio.to_thread(find_report, self.uri, self.conn_id, KINDS)
            except AirflowException:
                break
            if found is not None:
                break
            await asyncio.sleep(self.poll_seconds)
        yield TriggerEvent({"report": self.uri})


class _XComLink(BaseOperatorLink):
    """A link that the task put into an XCom when it submitted its job, so that a failed task has it too."""

    name: str
    key: str

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL; empty, and so no link, if the task was given none."""
        return str(XCom.get_value(ti_key=ti_key, key=self.key) or "")


class ReportLink(_XComLink):
    """The report of the task's submission, where ``report_url`` serves it."""

    name, key = "Report", "sparkcrypt_report_url"


class StatusLink(_XComLink):
    """The status of all tables, where ``status_url`` says."""

    name, key = "Status of tables", "sparkcrypt_status_url"


class LinksPlugin(AirflowPlugin):
    """Makes the links known to the server of Airflow 2, which shows no others."""

    name = "sparkcrypt"
    operator_extra_links = (ReportLink(), StatusLink())
