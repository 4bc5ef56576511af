"""Units as JSON values in journals, used to identify them after a crash, and to distinguish old from late files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.beside_data import Beside
from sparkcrypt.ledger.unit import Folder, SourceFile, Unit
from sparkcrypt.paths import comparable_path
from sparkcrypt.spark.tables.table import Partition


def describe_unit(unit: Unit) -> dict[str, Any]:
    """Return a unit as JSON values for a journal."""
    return {
        "location": unit.location,
        "partition": None if unit.partition is None else [list(pair) for pair in unit.partition.values],
        "serde": "" if unit.partition is None else unit.partition.serde,
        "partition_path": unit.partition_path,
        "files": describe_folders(unit.folders),
        "summaries": [[entry.path, entry.length] for entry in unit.beside if entry.kind == "summary"],
    }


def restore_unit(name: str, fields: Mapping[str, Any]) -> Unit:
    """Return the unit that a journal's values describe, with its files.

    Raises:
        VerificationError: the journal is archived, so it has no list of files.
    """
    if "files" not in fields:
        raise VerificationError(describe_archived(name))
    return replace(restore_place(name, fields), folders=restore_folders(fields["files"]))


def describe_archived(name: str) -> str:
    """Return the message that a unit's files are not known, since the old files of its run have expired."""
    return (
        f"{name}: the old files of its run have expired, and the run's archive lists no file of it, so nothing can be "
        "compared with what the run had listed or written"
    )


def restore_place(name: str, fields: Mapping[str, Any]) -> Unit:
    """Return the unit that a journal's values describe, without its files, which an archived journal does not list."""
    values = tuple((pair[0], pair[1]) for pair in fields["partition"] or ())
    location = str(fields["location"])
    return Unit(
        name=name,
        location=location,
        partition=Partition(values, location, str(fields["serde"])) if values else None,
        partition_path=str(fields["partition_path"]),
        values=dict(values),
        beside=tuple(Beside(str(path), "summary", int(length)) for path, length in fields.get("summaries", ())),
    )


def restore_folders(values: Iterable[Any]) -> tuple[Folder, ...]:
    """Return the files in a journal's values, folder by folder."""
    return tuple(Folder(folder, tuple(SourceFile(*file) for file in files)) for folder, files in values)


def describe_folders(folders: tuple[Folder, ...]) -> list[Any]:
    """Return the files of a unit, folder by folder, as JSON values."""
    return [[folder.relative, [file.to_list() for file in folder.files]] for folder in folders]


def by_place(location: str, folders: tuple[Folder, ...]) -> dict[str, SourceFile]:
    """Return a dict of path below a location -> file."""
    root = comparable_path(location)
    return {_below_root(root, file.path): file for folder in folders for file in folder.files}


def path_below(location: str, path: str) -> str:
    """Return a file's path below a folder; the URI forms of the two may differ (``file:/x`` and ``file:///x``)."""
    return _below_root(comparable_path(location), path)


def _below_root(root: str, path: str) -> str:
    return comparable_path(path).removeprefix(root).lstrip("/")
