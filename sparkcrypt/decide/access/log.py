"""Writing of access events: lines of JSON in files that one process alone appends to, with a folder for each day."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sparkcrypt.decide.access.records import Record
from sparkcrypt.durable import sync_folder
from sparkcrypt.errors import FormatError, StorageError
from sparkcrypt.regular_files import open_descriptor

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
                raise StorageError(
                    f"access events cannot be written below {self._folder} ({_reason_of(error)}); see that the "
                    "folder of the policy's access_log is there, may be written to by this user, and has room"
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


def _reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _day_of(record: Record) -> str:
    return str(record["time"])[:10]
