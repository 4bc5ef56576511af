"""The access log: its records, and the writing of them as lines of JSON in files that one process alone appends to."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sparkcrypt.durable import sync_folder
from sparkcrypt.errors import BridgeError, FormatError, StorageError, show
from sparkcrypt.regular_files import open_descriptor

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
