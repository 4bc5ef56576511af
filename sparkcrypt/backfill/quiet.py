"""Waits until nobody is at work in a folder that a run has left: no writer's own folder there, two listings that agree.

A writer's commit renames file after file, and a compaction adds its file before it removes others; what is listed in
between is neither the old state nor the new one.  Killed writers leave their folders for ever, so nothing waits longer
than ``MOST_SECONDS``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from sparkcrypt.backfill.units import Folder, list_folders
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.spark.files import HadoopFiles

APART_SECONDS = 20.0
"""How far two listings are apart."""
MOST_SECONDS = 600.0
"""How long a commit is waited for."""


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
    for place in _up_to(folder, base):
        if files.exists(place):
            for name in files.names(place):
                if name == "_temporary" or name.startswith((".spark-staging", ".hive-staging")):
                    return f"{place}/{name}"
    return None


def _up_to(folder: str, base: str) -> list[str]:
    """Return a folder, those above it within the table's, and the table's."""
    places, folder = [folder.rstrip("/")], folder.rstrip("/")
    top = comparable_path(base).rstrip("/")
    while comparable_path(folder).startswith(top + "/"):
        folder = folder.rpartition("/")[0]
        places.append(folder)
    return places if comparable_path(places[-1]) == top else [*places, base]
