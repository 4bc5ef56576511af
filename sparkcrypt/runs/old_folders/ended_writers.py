"""Waiting for the writers of an old folder to end: no writer's temporary folder is there, and two listings agree.

A writer's commit renames one file after another, and a compaction adds its file before it removes others; a listing in
between shows neither the old state nor the new one.  Killed writers leave their temporary folders for ever, so the wait
ends after ``MOST_SECONDS``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkcrypt.files.listing import is_writers_folder
from sparkcrypt.ledger.unit import Folder, list_folders
from sparkcrypt.paths import comparable_path
from sparkcrypt.spark.files.hadoop import HadoopFiles

APART_SECONDS = 20.0
"""The time between two listings."""
MOST_SECONDS = 600.0
"""The longest time to wait for a commit."""
_CLOCKS_APART_MS = 60_000
"""The largest difference allowed for between the clocks of the driver and of the file system."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder, and why they may not be final; None if two listings agree and no writer is there."""

    folders: tuple[Folder, ...]
    at_work: str | None


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait_until_quiet(
    files: HadoopFiles, folders: Mapping[str, bool], base: str, listed: Mapping[str, tuple[Folder, ...]]
) -> dict[str, Listing]:
    """List folders repeatedly until each is quiet; all are waited for together.

    Args:
        files: the file system.
        folders: folder -> whether to wait for it; if not, it is listed once more only.
        base: the table's folder, below which writers have their temporary folders.
        listed: folder -> its files at the last listing.
    """
    before, found = dict(listed), dict[str, Listing]()
    end = time.monotonic() + MOST_SECONDS
    while len(found) < len(folders):
        pause(APART_SECONDS)
        for folder, waits in folders.items():
            if folder in found:
                continue
            at_work = writers_folder(files, folder, base)
            now = list_folders(files, folder)
            if now != before[folder]:
                at_work = at_work or f"{folder}, whose files keep changing"
            if at_work is None or not waits or time.monotonic() >= end:
                found[folder] = Listing(now, at_work)
            before[folder] = now
    return found


def writers_folder(files: HadoopFiles, folder: str, base: str) -> str | None:
    """Return a writer's temporary folder in a folder or above it, up to the table's; None if there is none."""
    return next(_writers_folders(files, folder, base), None)


def earlier_writers_folder(files: HadoopFiles, folder: str, base: str, since_ms: int) -> str | None:
    """Return the temporary folder of a writer that may have been planned before a moment; None if there is none.

    Every job re-creates ``_temporary``, so its modification time is the start of the job.  A staging folder belongs to
    one job and changes when the job ends, so its time does not show when the job was planned.  Nor does any time below
    the folder itself: a job that writes directly to it was planned while it was still in use, whenever the job starts.

    Args:
        files: the file system.
        folder: the folder to which it may commit; jobs planned now do not write to it.
        base: the table's folder.
        since_ms: the moment, in milliseconds since the epoch.
    """
    for writing in _writers_folders(files, folder, base):
        if not writing.endswith("/_temporary") or writing.rpartition("/")[0] == folder.rstrip("/"):
            return writing
        if files.exists(writing) and files.status(writing).modified_ms <= since_ms + _CLOCKS_APART_MS:
            return writing
    return None


def writers_folder_in(files: HadoopFiles, folder: str) -> str | None:
    """Return a writer's temporary folder directly in a folder; None if there is none."""
    return next(_list_in(files, folder), None)


def _writers_folders(files: HadoopFiles, folder: str, base: str) -> Iterator[str]:
    for place in _list_folders_up_to(folder, base):
        yield from _list_in(files, place)


def _list_in(files: HadoopFiles, place: str) -> Iterator[str]:
    if files.exists(place):
        for name in files.names(place):
            if is_writers_folder(name):
                yield f"{place}/{name}"


def _list_folders_up_to(folder: str, base: str) -> list[str]:
    """Return a folder, the folders above it within the table's folder, and the table's folder."""
    places, folder = [folder.rstrip("/")], folder.rstrip("/")
    top = comparable_path(base).rstrip("/")
    while comparable_path(folder).startswith(top + "/"):
        folder = folder.rpartition("/")[0]
        places.append(folder)
    return places if comparable_path(places[-1]) == top else [*places, base]
