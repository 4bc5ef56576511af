"""Waits until nobody is at work in a folder that a run has left: no writer's own folder there, two listings that agree.

A writer's commit renames file after file, and a compaction adds its file before it removes others; what is listed in
between is neither the old state nor the new one.  Killed writers leave their folders for ever, so nothing waits longer
than ``MOST_SECONDS``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkcrypt.backfill.target.unit import Folder, is_writers_folder, list_folders
from sparkcrypt.paths import comparable_path
from sparkcrypt.spark.files.hadoop import HadoopFiles

APART_SECONDS = 20.0
"""How far two listings are apart."""
MOST_SECONDS = 600.0
"""How long a commit is waited for."""
_CLOCKS_APART_MS = 60_000
"""How far the clocks of a driver and of the file system may be apart."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a folder, and why that may not be all: None when two listings agree and no writer is there."""

    folders: tuple[Folder, ...]
    at_work: str | None


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait_until_quiet(
    files: HadoopFiles, folders: Mapping[str, bool], base: str, listed: Mapping[str, tuple[Folder, ...]]
) -> dict[str, Listing]:
    """List folders until each is quiet, all at the same time.

    Args:
        files: the file system.
        folders: folder -> whether it is worth waiting; without, it is listed once more and that is told.
        base: of the table, below which writers have folders of their own.
        listed: folder -> what was there a moment ago.
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
    """Return the folder of a writer's own that is in a folder or above it, up to the table's; None without one."""
    return next(_writers_folders(files, folder, base), None)


def earlier_writers_folder(files: HadoopFiles, folder: str, base: str, since_ms: int) -> str | None:
    """Return a writer's folder whose writer may have been planned before a moment; None where all came later.

    Every job makes ``_temporary`` anew, so its time is that of the job's begin.  Staging folders are each one job's
    own and change when it ends, so their time says nothing.  Nor does any time in the folder itself: who begins to
    write there was told of it before the moment.

    Args:
        files: the file system.
        folder: which it may write to, and nobody who is planned now.
        base: of the table.
        since_ms: the moment, in milliseconds since the epoch.
    """
    for writing in _writers_folders(files, folder, base):
        if not writing.endswith("/_temporary") or writing.rpartition("/")[0] == folder.rstrip("/"):
            return writing
        if files.exists(writing) and files.status(writing).modified_ms <= since_ms + _CLOCKS_APART_MS:
            return writing
    return None


def writers_folder_in(files: HadoopFiles, folder: str) -> str | None:
    """Return the folder of a writer's own that is directly in a folder; None without one."""
    return next(_in(files, folder), None)


def _writers_folders(files: HadoopFiles, folder: str, base: str) -> Iterator[str]:
    for place in _up_to(folder, base):
        yield from _in(files, place)


def _in(files: HadoopFiles, place: str) -> Iterator[str]:
    if files.exists(place):
        for name in files.names(place):
            if is_writers_folder(name):
                yield f"{place}/{name}"


def _up_to(folder: str, base: str) -> list[str]:
    """Return a folder, those above it within the table's, and the table's."""
    places, folder = [folder.rstrip("/")], folder.rstrip("/")
    top = comparable_path(base).rstrip("/")
    while comparable_path(folder).startswith(top + "/"):
        folder = folder.rpartition("/")[0]
        places.append(folder)
    return places if comparable_path(places[-1]) == top else [*places, base]
