"""The access log: its records, written as lines of JSON, and who read a column on a day, read from them.

A file is appended to by one process alone; each day has a folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sparkcrypt.durable import sync_folder
from sparkcrypt.errors import BridgeError, ConfigError, FormatError, StorageError, show
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.policy.model import normalized_table
from sparkcrypt.regular_files import open_descriptor, open_regular

Record: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Literal["opened", "refused", "masked", "failed", "declassified"]

VERSION = 1
ACCESS, QUERY, LOST = "access", "query", "lost"
"""Keys of a table that a reader asked for; a query that the listener saw; events that were not recorded."""
OUTCOMES: tuple[Outcome, ...] = ("opened", "refused", "masked", "failed", "declassified")
MOST_COLUMNS = 256
MOST_CHARACTERS = 1_000
_WHO = ("principal", "session_user", "application", "execution", "route")
_TEXTS = {ACCESS: (*_WHO, "table", "key", "why"), QUERY: (*_WHO, "query_digest"), LOST: ("principal", "application")}


def make_record(event: Mapping[str, Any], *, process: str) -> Record:
    """Return an event in the form of the log: known fields alone, each bounded, times in UTC.

    Args:
        event: ``kind`` (``access``, ``query`` or ``lost``), ``number`` (its place among those of its process),
            ``first_ms`` and ``last_ms`` (since 1970), ``count``; the reader's ``principal``, ``session_user``,
            ``application``, ``execution``, ``route``; of an access ``outcome``, ``why``, ``table``, ``key``,
            ``columns`` (dotted), ``tags`` (that were removed) and ``footer`` (whether the footer's key was asked for);
            of a query ``query_digest``.
        process: the process that saw it, which uses no number twice.

    Raises:
        BridgeError: a field that it must have is missing or of another type.
    """
    kind = event.get("kind")
    if kind not in _TEXTS:
        raise BridgeError(f"an access event is of kind {show(kind)}; allowed: {', '.join(_TEXTS)}")
    first = _number(event, "first_ms")
    record: Record = {"v": VERSION, "kind": kind, "time": _utc(first), "last": _utc(_number(event, "last_ms"))}
    record |= {name: _text(event.get(name)) for name in _TEXTS[kind]}
    if kind == ACCESS:
        if event.get("outcome") not in OUTCOMES:
            raise BridgeError(f"an access event's outcome is {show(event.get('outcome'))}; allowed: {OUTCOMES}")
        columns = [_text(column) for column in event.get("columns") or ()]
        record |= {"outcome": event["outcome"], "columns": columns[:MOST_COLUMNS], "footer": bool(event.get("footer"))}
        if event["outcome"] == "declassified":
            record["tags"] = [_text(tag) for tag in event.get("tags") or ()]
    return record | {"count": _number(event, "count"), "process": process, "number": _number(event, "number")}


def _number(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise BridgeError(f"an access event's {name!r} is {show(value)}; allowed: a whole number")
    return value


def _text(value: object) -> str | None:
    """Return a text that UTF-8 can encode, cut if it is long: names of tables and keys must not set the log's size."""
    if value is None:
        return None
    text = str(value).encode("utf-8", "replace").decode()
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _utc(milliseconds: int) -> str:
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise BridgeError(f"an access event's time is {milliseconds} ms since 1970; allowed: a date") from error
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


DAY_PREFIX, SUFFIX = "day=", ".jsonl"
MOST_BYTES = 64 * 1024 * 1024
"""The size that a file may reach before the next one is created."""
_MOST_NAME = 120
_MODE = 0o640
_MODE_LOOKS, _MODE_PAUSE = 10, 0.05


@dataclass(slots=True)
class _File:
    day: str
    path: Path
    size: int
    name_synced: bool = False


class AccessLog:
    """The files of one process below the folder of a log: ``day=2026-11-23/<owner>-<n>.jsonl``; safe for many threads.

    Each batch is one write to a file that is opened for it, so a file may be moved away at any time.  A file that
    could not be written completely is not used again, so that readers can tell its last line from an event.

    Args:
        folder: the log's folder; created for its owner alone if it is missing.  A folder of several users gives its
            mode and, by its set-group-id bit, its group to the folders of days.  A day whose folder another user has
            made is continued in ``user=<id>/``, since whoever owns a folder can remove what is in it.
        owner: unique to this process; part of the names of files.
        most_bytes: the maximum size of a file.
    """

    def __init__(self, folder: str | os.PathLike[str], *, owner: str, most_bytes: int = MOST_BYTES) -> None:
        self._folder = Path(folder)
        self._top = self._folder.parent
        """The highest folder in which an entry may be new."""
        self._owner = re.sub(r"[^A-Za-z0-9._-]", "_", owner).lstrip(".")[:_MOST_NAME]
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._made = 0

    def __repr__(self) -> str:
        return f"AccessLog({str(self._folder)!r}, owner={self._owner!r})"

    def append(self, records: Iterable[Record], *, durable: bool = False) -> None:
        """Append records, each to the file of the day on which it began.

        Args:
            records: from ``make_record``.
            durable: return only after the content of the files is on the disk, and their names in their folders.

        Raises:
            StorageError: some of them may not be written; appending them again is safe, since each has its number.
        """
        ordered = sorted(records, key=_day_of)
        with self._lock:
            try:
                for day, some in groupby(ordered, key=_day_of):
                    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in some]
                    self._write(day, "".join(f"{line}\n" for line in lines).encode(), durable)
            except (OSError, FormatError) as error:
                why = getattr(error, "strerror", None) or str(error)
                raise StorageError(
                    f"access events cannot be written below {self._folder} ({why}); see that the folder of the "
                    "policy's access_log is there, may be written to by this user, and has room"
                ) from error

    def _write(self, day: str, content: bytes, durable: bool) -> None:
        file = self._files.get(day)
        if file is None or file.size + len(content) > self._most_bytes or not file.path.exists():
            file = self._begin(day)
        self._keep(file)
        descriptor = open_descriptor(file.path, os.O_WRONLY | os.O_APPEND)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if durable:
                os.fsync(descriptor)
                self._sync_name(file)
        except BaseException:
            del self._files[day]
            raise
        finally:
            os.close(descriptor)
        file.size += len(content)

    def _sync_name(self, file: _File) -> None:
        """Sync the folders whose entries lead to a file, once for each file."""
        if file.name_synced:
            return
        folder = file.path.parent
        try:
            sync_folder(folder)
            while folder != self._top:
                folder = folder.parent
                sync_folder(folder)
        except PermissionError:
            os.sync()  # a folder that may be written to, and not be listed, cannot be synced by itself
        file.name_synced = True

    def _keep(self, file: _File) -> None:
        """Keep a file as the one in which its day continues; of the other days, only the newest two are kept."""
        self._files[file.day] = file
        for day in sorted(self._files)[:-2]:
            if day != file.day:
                del self._files[day]

    def _begin(self, day: str) -> _File:
        """Create an empty file for a day, which no other process uses."""
        if not self._folder.exists():
            self._top = next(above for above in self._folder.parents if above.exists())
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._make_day(f"{DAY_PREFIX}{day}")
        while True:
            path = folder / f"{self._owner}-{self._made:06}{SUFFIX}"
            self._made += 1
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
            except FileExistsError:
                continue
            return _File(day, path, 0)

    def _make_day(self, name: str) -> Path:
        """Return the folder of a day, shared, or this user's own if another user owns the shared one."""
        like, own = self._folder.stat(), self._folder / f"user={os.geteuid()}"
        if _make_safe(self._folder / name, like):
            return self._folder / name
        if _make_safe(own, like) and _make_safe(own / name, like):
            return own / name
        raise StorageError(
            f"access log {self._folder}: {name} and {own.name} in it are links, more open than the log, or belong "
            "to other users, who could remove events; expected: folders of this user, of root or of the log's owner; "
            "remove them, and see that the log's folder has mode 3770"
        )


def _make_safe(folder: Path, like: os.stat_result) -> bool:
    """Make a folder with the log's mode if there is none; return whether no other user can empty it."""
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(stat.S_IMODE(like.st_mode))
    for _ in range(_MODE_LOOKS):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0, like.st_uid):
            return False
        opened, lost = found.st_mode & ~like.st_mode, like.st_mode & ~found.st_mode
        if not opened & (stat.S_IWGRP | stat.S_IWOTH) and not lost & stat.S_ISVTX:
            return True
        time.sleep(_MODE_PAUSE)  # its maker may be between the two calls above
    return False


def _day_of(record: Record) -> str:
    return str(record["time"])[:10]


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


class DeclassifiedUses:
    """The uses of ``declassify`` in an access log, found by the columns and the tags of the values."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._records: list[Record] = []
        self._by_table: dict[str, list[int]] = {}
        self._without_table: dict[str, list[int]] = {}

    def add(self, record: Record) -> None:
        """Add a record of them; those that say the same are one."""
        use: Record = {name: record.get(name) for name in ("table", "columns", "footer", "principal", "why")}
        tags = record.get("tags")
        use["tags"] = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
        number = self._uses.setdefault(json.dumps(use), len(self._records))
        if number < len(self._records):
            self._records[number]["count"] += record["count"]
            return
        self._records.append({**use, "count": record["count"]})
        self._by_table.setdefault(normalized_table(str(use["table"])), []).append(number)
        for tag in set(use["tags"]) if use["table"] is None else ():
            self._without_table.setdefault(tag, []).append(number)

    def of(self, columns: Iterable[str], tags: Collection[str]) -> dict[tuple[str, str, str], int]:
        """Return how often the tags of some columns were removed from their values.

        Args:
            columns: table and column, such as ``sales.customers.email``.
            tags: values without a recorded table are counted by these tags.

        Returns:
            (column, or the tags of values without a table; principal; reason) -> uses.
        """
        found: dict[tuple[str, str, str], int] = {}

        def count(source: str, record: Record) -> None:
            same = (source, str(record["principal"]), str(record["why"]))
            found[same] = found.get(same, 0) + record["count"]

        by_tags = {number for tag in tags for number in self._without_table.get(tag, ())}
        for number in by_tags:
            record = self._records[number]
            count(",".join(tag for tag in record["tags"] if tag in tags), record)
        for wanted in columns:
            names = normalized_table(wanted).split(".")
            for table in (".".join(names[:end]) for end in range(1, len(names))):
                for number in self._by_table.get(table, ()):
                    if number not in by_tags and _match_columns(self._records[number], wanted, or_above=True):
                        count(wanted, self._records[number])
        return found


def read_declassified(folder: Path) -> DeclassifiedUses:
    """Return the uses of ``declassify`` on all days of a log.

    Args:
        folder: a log's folder, or a folder with the logs of several machines.

    Raises:
        ConfigError: there is no such folder.
        StorageError: it cannot be read.
    """
    uses, event_ids = DeclassifiedUses(), set[tuple[object, object]]()
    for record in _records(_files_below(_require_folder(folder)), lambda _: None):
        once = (record.get("process"), record.get("number"))
        if record["kind"] == ACCESS and record["outcome"] == "declassified" and once not in event_ids:
            event_ids.add(once)
            uses.add(record)
    return uses


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
