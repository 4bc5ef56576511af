"""Reading of access logs: who read a column on a day, who was refused, and what of the log could not be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from sparkcrypt.decide.access.log import ACCESS, DAY_PREFIX, LOST, MOST_BYTES, OUTCOMES, QUERY, SUFFIX, VERSION, Record
from sparkcrypt.errors import ConfigError, FormatError, StorageError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.policy.model import normalized_table
from sparkcrypt.regular_files import open_regular

MOST_LINE_BYTES = 1 << 20
MOST_FILE_BYTES = 4 * MOST_BYTES
MOST_NAMED = 20
"""Maximum number of unreadable lines that are named; all are counted."""
_WRAPPERS = {("list", "element"), ("bag", "array_element"), ("key_value", "key"), ("key_value", "value")}
_ELEMENTS = {"array_element": "element"}
_SAME = ("application", "process", "execution", "principal", "session_user", "route", "table", "key", "outcome", "why")


@dataclass(slots=True)
class AccessReport(JsonObject):
    """The accesses to one column on one day, from a log.

    Attributes:
        column: table and column, as asked.
        day: in UTC.
        accesses: one for each execution, process, key and outcome, by time; ``count`` keys were asked for.
        files: how many files were read.
        lost: number of events, of any column, that their processes could not record.
        missing: number of events, of any column, that come between others of their processes on this day or the days
            beside it, and are in no file.
        unreadable: number of lines that are not records, such as the last line of a file that was cut off.
        unreadable_at: the first of these, each with file, line and reason.
    """

    column: str
    day: str
    accesses: list[Record] = field(default_factory=list)
    files: int = 0
    lost: int = 0
    missing: int = 0
    unreadable: int = 0
    unreadable_at: list[str] = field(default_factory=list)


def read_accesses(folder: Path, column: str, day: date) -> AccessReport:
    """Return the recorded requests for the keys of a column on a day.

    Args:
        folder: a log's folder, or a folder with the logs of several machines.
        column: table and column, such as ``sales.customers.email``; a column stands for all below it.
        day: in UTC.

    Raises:
        ConfigError: there is no such folder.
        StorageError: it cannot be read.
    """
    _require_folder(folder)
    report = AccessReport(column, day.isoformat())
    grouped: dict[tuple[object, ...], Record] = {}
    event_ids: set[tuple[object, object]] = set()

    def note_unreadable(text: str) -> None:
        report.unreadable += 1
        if len(report.unreadable_at) < MOST_NAMED:
            report.unreadable_at.append(text)

    before, files, after = (_files_below(folder, day + timedelta(days=days)) for days in (-1, 0, 1))
    report.files = len(files)
    numbers: dict[str, set[int]] = {}
    for record in _records([*before, *after], lambda _: None):
        numbers.setdefault(record["process"], set()).add(record["number"])
    for record in _records(files, note_unreadable):
        numbers.setdefault(record["process"], set()).add(record["number"])
        columns = _match_columns(record, column) if record["kind"] == ACCESS else None
        if columns is None and record["kind"] != LOST:
            continue
        once = (record.get("process"), record.get("number"))
        if once in event_ids:
            continue  # a batch whose answer was lost is sent again
        event_ids.add(once)
        if record["kind"] == LOST:
            report.lost += record["count"]
        else:
            _add(grouped, record, columns or [])
    report.accesses = sorted(grouped.values(), key=lambda record: (record["time"], str(record["principal"])))
    report.missing = sum(max(found) - min(found) + 1 - len(found) for found in numbers.values())
    _enrich(report.accesses, [*files, *after])
    return report


def read_declassified(folder: Path, columns: Iterable[str], tags: Collection[str]) -> dict[tuple[str, str, str], int]:
    """Return how often the tags of some columns were removed from their values, on all days of a log.

    Args:
        folder: a log's folder, or a folder with the logs of several machines.
        columns: table and column, such as ``sales.customers.email``.
        tags: values without a recorded table are counted by these tags.

    Returns:
        (column, or the tags of values without a table; principal; reason) -> uses.

    Raises:
        ConfigError: there is no such folder.
        StorageError: it cannot be read.
    """
    wanted = sorted(columns)
    found: dict[tuple[str, str, str], int] = {}
    event_ids: set[tuple[object, object]] = set()
    for record in _records(_files_below(_require_folder(folder)), lambda _: None):
        once = (record.get("process"), record.get("number"))
        if record["kind"] != ACCESS or record["outcome"] != "declassified" or once in event_ids:
            continue
        event_ids.add(once)
        carried = [tag for tag in record.get("tags") or () if tag in tags]
        sources = [column for column in wanted if _match_columns(record, column, or_above=True)]
        if record.get("table") is None and carried:
            sources = [",".join(carried)]
        for source in sources:
            same = (source, str(record.get("principal")), str(record.get("why")))
            found[same] = found.get(same, 0) + record["count"]
    return found


def read_tables_read(folder: Path) -> dict[tuple[str, str], str]:
    """Return which tables were read under which keys, on all days of a log.

    Args:
        folder: a log's folder, or a folder with the logs of several machines.

    Returns:
        (table, master key id) -> the day of the last access.

    Raises:
        ConfigError: there is no such folder.
        StorageError: it cannot be read.
    """
    found: dict[tuple[str, str], str] = {}
    for record in _records(_files_below(_require_folder(folder)), lambda _: None):
        table, key_id = record.get("table"), record.get("key")
        if record["kind"] == ACCESS and table is not None and key_id is not None:
            same = (str(table), str(key_id))
            found[same] = max(found.get(same, ""), record["last"][:10])
    return found


def _require_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigError(
            f"access log {folder}: is no folder on this machine; allowed: the folder of the policy's access_log, on "
            "each machine that reads, or by --log one into which these were brought together"
        )
    return folder


def _files_below(folder: Path, day: date | None = None) -> list[Path]:
    """Return the files of a log of one day, or of all days."""
    try:
        return sorted(folder.rglob(f"{DAY_PREFIX}{day.isoformat() if day else '*'}/*{SUFFIX}"))
    except OSError as error:
        raise StorageError(f"access log {folder}: cannot be listed ({error.strerror})") from error


def _add(grouped: dict[tuple[object, ...], Record], record: Record, columns: list[str]) -> None:
    """Add a record to those of the same execution, process, key and outcome."""
    same = tuple(record.get(name) for name in _SAME)
    summary = grouped.setdefault(
        same,
        {
            "time": record["time"],
            "last": record["last"],
            **dict(zip(_SAME, same, strict=True)),
            "columns": [],
            "count": 0,
            "query_digest": None,
        },
    )
    summary["time"], summary["last"] = min(summary["time"], record["time"]), max(summary["last"], record["last"])
    summary["columns"] = sorted({*summary["columns"], *columns})
    summary["count"] += record["count"]


def _enrich(accesses: list[Record], files: list[Path]) -> None:
    """Add what the driver's listener recorded of the same executions at their end, which may be on the next day."""
    wanted: dict[tuple[object, object], list[Record]] = {}
    for access in accesses:
        if access["execution"] is not None:
            wanted.setdefault((access["application"], access["execution"]), []).append(access)
    for record in _records(files, lambda _: None) if wanted else ():
        if record["kind"] == QUERY:
            for access in wanted.get((record.get("application"), record.get("execution")), ()):
                access["query_digest"] = record.get("query_digest")
                access["session_user"] = record.get("session_user") or access["session_user"]
                access["route"] = record.get("route") or access["route"]


def _match_columns(record: Record, wanted: str, *, or_above: bool = False) -> list[str] | None:
    """Return the columns of a record that are a wanted one, or below it, or also above it; None if none is."""
    table = f"{normalized_table(str(record.get('table')))}."
    if not normalized_table(wanted).startswith(table):
        return None
    column = normalized_table(wanted)[len(table) :]
    if record.get("footer"):
        return []  # without the footer's key no column can be read
    found = [
        name
        for name in record["columns"]
        if any(_is_below(form, column) or (or_above and _is_below(column, form)) for form in _forms(name))
    ]
    return found or None


def _is_below(column: str, wanted: str) -> bool:
    return f"{column}.".startswith(f"{wanted}.")


def _forms(column: str) -> tuple[str, str]:
    """Return a column's Parquet path, and that path without the groups that only files have in lists and maps."""
    names = column.lower().split(".")
    kept = [name for place, name in enumerate(names) if tuple(names[place : place + 2]) not in _WRAPPERS]
    return ".".join(names), ".".join(_ELEMENTS.get(name, name) for name in kept)


def _records(files: list[Path], note_unreadable: Callable[[str], None]) -> Iterator[Record]:
    """Yield the records of files; report lines that are not records and leave them out."""
    for file in files:
        try:
            with open_regular(file) as stream:
                number = 0
                while stream.tell() < MOST_FILE_BYTES and (line := stream.readline(MOST_LINE_BYTES)):
                    number += 1
                    record, reason = _parse(line)
                    if record is None:
                        note_unreadable(f"{file}:{number}: {reason}")
                        while line and not line.endswith(b"\n") and stream.tell() < MOST_FILE_BYTES:
                            line = stream.readline(MOST_LINE_BYTES)
                    else:
                        yield record
                if stream.read(1):
                    note_unreadable(f"{file}: is longer than any file of a log; the rest is not read")
        except OSError as error:
            note_unreadable(f"{file}: cannot be read ({error.strerror})")
        except FormatError as error:
            note_unreadable(str(error))


def _parse(line: bytes) -> tuple[Record | None, str]:
    if not line.endswith(b"\n"):
        return None, "cut off, or longer than any record"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None, "not JSON"
    if not isinstance(record, dict) or record.get("v") != VERSION or record.get("kind") not in (ACCESS, QUERY, LOST):
        return None, f"no record of version {VERSION}"
    texts = all(isinstance(record.get(name), str) for name in ("time", "last", "process"))
    if not texts or not all(isinstance(record.get(name), int) for name in ("count", "number")):
        return None, "a record without time, process, count or number"
    if record["kind"] == ACCESS and not _is_access(record):
        return None, "an access without outcome or columns"
    return record, ""


def _is_access(record: Record) -> bool:
    columns = record.get("columns")
    texts = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    scalar = all(isinstance(record.get(name), str | None) for name in _SAME)
    return texts and scalar and record.get("outcome") in OUTCOMES
