"""A unit as journals hold it: enough to know it again after a crash, and to tell old files from a stale writer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.backfill.units import Folder, SourceFile, Unit
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.spark.catalog import Partition


def described(unit: Unit) -> dict[str, Any]:
    """Return what a journal needs to know a unit again, as JSON values."""
    return {
        "location": unit.location,
        "partition": None if unit.partition is None else [list(pair) for pair in unit.partition.values],
        "serde": "" if unit.partition is None else unit.partition.serde,
        "partition_path": unit.partition_path,
        "files": listed(unit.folders),
    }


def restored(name: str, fields: Mapping[str, Any]) -> Unit:
    """Return the unit that a journal described."""
    values = tuple((pair[0], pair[1]) for pair in fields["partition"] or ())
    location = str(fields["location"])
    return Unit(
        name=name,
        location=location,
        partition=Partition(values, location, str(fields["serde"])) if values else None,
        partition_path=str(fields["partition_path"]),
        values=dict(values),
        folders=tuple(Folder(one[0], tuple(SourceFile(*file) for file in one[1])) for one in fields["files"]),
    )


def listed(folders: tuple[Folder, ...]) -> list[Any]:
    """Return the files of a unit, folder by folder, as JSON values."""
    return [[folder.relative, [file.to_list() for file in folder.files]] for folder in folders]


def by_place(location: str, folders: tuple[Folder, ...]) -> dict[str, SourceFile]:
    """Return path below a location -> file."""
    return {below(location, file.path): file for folder in folders for file in folder.files}


def below(location: str, path: str) -> str:
    """Return a file's path below a folder; the URI forms of the two may differ (``file:/x`` and ``file:///x``)."""
    return comparable_path(path).removeprefix(comparable_path(location)).lstrip("/")
