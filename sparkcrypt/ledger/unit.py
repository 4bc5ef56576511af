"""Units, each of which is swapped as a whole: their listed files, their outcome, and both as JSON values of records."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import PlanError, SparkcryptError, StorageError, VerificationError
from sparkcrypt.files.listing import STAGING_FOLDER, Beside, refuse_formats
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.names import FileFormat
from sparkcrypt.paths import comparable_path, partition_values, trailing_partition
from sparkcrypt.spark.files.listing import SourceFile, list_contents
from sparkcrypt.spark.tables.table import Partition

if TYPE_CHECKING:
    from sparkcrypt.spark.files.hadoop import HadoopFiles


_STAGED = re.compile(rf"^(?P<parent>.*)/{re.escape(STAGING_FOLDER)}/(?P<name>[^/]+)/(?P<run>[^/]+)(?P<rest>/.*)?$")
_RUN = re.compile(r"(?:old-)?(?P<run>\d{8}T\d+Z-[0-9a-z]+)(?:-.*)?")
_LISTING_PAUSES_SECONDS = (0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one folder of a unit; ``relative`` is its path below the unit, empty for the unit itself."""

    relative: str
    files: tuple[SourceFile, ...]

    def to_json(self) -> list[Any]:
        """Return the folder as JSON values for a journal."""
        return [self.relative, [file.to_list() for file in self.files]]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Folder:
        """Return the folder from a journal's values."""
        relative, files = values
        return cls(relative, tuple(SourceFile(*file) for file in files))


@dataclass(frozen=True, slots=True)
class Unit:
    """A partition, an unpartitioned table, or a bare folder.

    ``values`` are the partition's values for key templates; ``partition_path`` is the partition in its files' AAD
    prefixes; ``folders`` and ``beside``, what lies beside its data files, are empty until the unit is listed.
    """

    name: str
    location: str
    partition: Partition | None
    partition_path: str
    values: Mapping[str, str]
    folders: tuple[Folder, ...] = ()
    beside: tuple[Beside, ...] = ()

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """Every data file of the unit."""
        return tuple(file for folder in self.folders for file in folder.files)

    @property
    def empty_files(self) -> tuple[str, ...]:
        """The paths of files of 0 bytes, which hold no row: Spark leaves them out, and so do runs."""
        folder = self.location.rstrip("/")
        return tuple(f"{folder}/{entry.path}" for entry in self.beside if entry.kind == "empty")

    @property
    def total_bytes(self) -> int:
        """The total length of all files, in bytes."""
        return sum(file.length for file in self.files)

    def find_other_serde(self, table_format: FileFormat) -> str:
        """Return the SerDe of a partition whose format is not that of its table; empty otherwise."""
        serde = self.partition.serde if self.partition else ""
        return "" if table_format in serde.rpartition(".")[2].lower() else serde

    def relocate(self, location: str, folders: tuple[Folder, ...]) -> Unit:
        """Return a copy of the unit with another location and other files."""
        return replace(self, location=location, folders=folders)

    def staging(self, base: str, attempt: str) -> str:
        """Return the folder for the unit's new files: beside the table, ending in the same partition folders.

        Args:
            base: the table's original folder.
            attempt: from ``attempt_folder``.
        """
        staged = f"{staging_folder(base)}/{attempt}"
        return f"{staged}/{self.partition_path}" if self.partition_path else staged


def base_location(location: str) -> str:
    """Return a table's original folder, whether its location is that folder or an earlier run's folder beside it."""
    match = _STAGED.match(location.rstrip("/"))
    return f"{match['parent']}/{match['name']}" if match else location.rstrip("/")


def is_staged(location: str) -> bool:
    """Return whether a folder is one in which a run made its files."""
    return _STAGED.match(location.rstrip("/")) is not None


def former_home(location: str, base: str) -> str | None:
    """Return the folder in which a table or partition lived before runs put it where it is; None if none did.

    Args:
        location: the folder of the table or partition.
        base: the table's original folder.
    """
    match = _STAGED.match(location.rstrip("/"))
    if match is None or _RUN.fullmatch(match["run"]) is None:
        return None
    return f"{base.rstrip('/')}{match['rest'] or ''}"


def run_of_folder(location: str) -> str | None:
    """Return the id of the run that made a folder, from the folder's path; None if no run made it."""
    match = _STAGED.match(location.rstrip("/"))
    named = _RUN.fullmatch(match["run"]) if match else None
    return named["run"] if named else None


def moved_place(place: str, before: str, now: str) -> str | None:
    """Return the new path of a folder of a table after the table's own folder was renamed.

    Args:
        place: the folder's path before the rename.
        before: the table's original folder before the rename.
        now: the table's original folder now.

    Returns:
        None if the folder is neither the table's nor below it, or the table's folder was not renamed.
    """
    folder, base = comparable_path(place), comparable_path(before)
    if base == comparable_path(now) or not (folder == base or folder.startswith(f"{base}/")):
        return None
    return now.rstrip("/") + folder[len(base) :]


def staging_folder(base: str) -> str:
    """Return the folder beside a table under which its runs put their files."""
    parent, _, name = base.rstrip("/").rpartition("/")
    return f"{parent}/{STAGING_FOLDER}/{name}"


def attempt_folder(run_id: str, fencing_token: int, attempt: int = 1) -> str:
    """Return the name of the folder of one driver's attempt at a unit.

    Each driver has its own staging folder: a driver that was suspended and lost its lock may still resume and point the
    table to its staged files, which must then be complete, and not those that another driver is writing.  Each further
    attempt of a driver has its own folder too: readers may have begun to read the files of an attempt before its swap
    was undone.  The end is random: after locks or journals were restored from a copy, tokens and attempts are used
    again, but folders must not be.
    """
    return f"{run_id}-{fencing_token}-{attempt}-{secrets.token_hex(4)}"


def old_folder(base: str, run_id: str, partition_path: str = "") -> str:
    """Return the folder to which a run moves the old files of a unit, out of the table's folder."""
    folder = f"{staging_folder(base)}/old-{run_id}"
    return f"{folder}/{partition_path}" if partition_path else folder


def list_folders(files: HadoopFiles, location: str) -> tuple[Folder, ...]:
    """List a unit's data files, folder by folder.

    Raises:
        PlanError: the folder belongs to a table format that keeps its own list of files.
    """
    return list_location(files, location)[0]


def list_location(files: HadoopFiles, location: str) -> tuple[tuple[Folder, ...], tuple[Beside, ...]]:
    """List a unit's data files, folder by folder, and what lies beside them and is of use without them, in one pass.

    Raises:
        PlanError: as `list_folders`.
    """
    root = files.qualify(location).rstrip("/")
    try:
        contents = list_contents(files, root)
    except StorageError:
        if files.exists(location):
            raise
        return (), ()
    refuse_formats(location, contents.beside)
    by_folder: dict[str, list[SourceFile]] = {}
    for file in contents.data:
        relative = file.path[len(root) + 1 :].rpartition("/")[0]
        by_folder.setdefault(relative, []).append(file)
    folders = tuple(Folder(name, tuple(found)) for name, found in sorted(by_folder.items()))
    return folders, tuple(entry for entry in contents.beside if entry.kind != "written")


def list_unit(files: HadoopFiles, unit: Unit) -> Unit:
    """Return a unit with its current files; retries if the folder cannot be listed, as while it is being replaced.

    Raises:
        PlanError: as `list_folders`.
        SparkcryptError: the folder cannot be listed.
    """
    for pause in _LISTING_PAUSES_SECONDS:
        try:
            return _list_once(files, unit)
        except PlanError:
            raise
        except SparkcryptError:
            time.sleep(pause)
    return _list_once(files, unit)


def _list_once(files: HadoopFiles, unit: Unit) -> Unit:
    folders, beside = list_location(files, unit.location)
    return replace(unit, folders=folders, beside=beside)


def refuse_overlaps(units: tuple[Unit, ...]) -> None:
    """Refuse units that share a folder or are inside one another: swapping one would change the other.

    Raises:
        PlanError: two units overlap; the message names them.
    """
    places = ((f"{comparable_path(unit.location)}/", unit) for unit in units)  # so x-old/ sorts before x/, not after
    for (above, before), (place, after) in pairwise(sorted(places, key=itemgetter(0))):
        if place.startswith(above):
            raise PlanError(
                f"units {before.name!r} and {after.name!r} share the folder {before.location}; copy the files of "
                "each into a folder of its own, and point it there with ALTER TABLE … SET LOCATION, then run again"
            )


def partition_of(unit: Unit, folder: Folder) -> Mapping[str, str]:
    """Return the partition values of a folder of a unit."""
    return unit.values or partition_values(trailing_partition(folder.relative.split("/")))


def describe_unit(unit: Unit) -> dict[str, Any]:
    """Return a unit as JSON values for a journal."""
    return {
        "location": unit.location,
        "partition": None if unit.partition is None else [list(pair) for pair in unit.partition.values],
        "serde": "" if unit.partition is None else unit.partition.serde,
        "partition_path": unit.partition_path,
        "files": [folder.to_json() for folder in unit.folders],
        "summaries": [[entry.path, entry.length] for entry in unit.beside if entry.kind == "summary"],
    }


def restore_unit(name: str, fields: Mapping[str, Any]) -> Unit:
    """Return the unit that a journal's values describe, with its files.

    Raises:
        VerificationError: the journal is archived, so it has no list of files.
    """
    if "files" not in fields:
        raise VerificationError(describe_archived(name))
    return replace(restore_place(name, fields), folders=tuple(map(Folder.from_json, fields["files"])))


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


def by_place(location: str, folders: tuple[Folder, ...]) -> dict[str, SourceFile]:
    """Return a dict of path below a location -> file."""
    root = comparable_path(location)
    return {_below_root(root, file.path): file for folder in folders for file in folder.files}


def path_below(location: str, path: str) -> str:
    """Return a file's path below a folder; the URI forms of the two may differ (``file:/x`` and ``file:///x``)."""
    return _below_root(comparable_path(location), path)


def _below_root(root: str, path: str) -> str:
    return comparable_path(path).removeprefix(root).lstrip("/")


@dataclass(frozen=True, slots=True)
class UnitOutcome(JsonObject, json_names={"name": "unit"}):
    """The outcome of a unit that was swapped.

    Attributes:
        name: the unit's name.
        files: the number of its old files.
        rows: the number of its rows.
        bytes_before: length of the old files, in bytes.
        bytes_after: length of the new files, in bytes.
        old_location: the folder of the old files.
        new_location: the folder of the new files.
        verified: whether the new files were fully verified before the swap.
        not_authenticated: the parts of the new files that no key authenticates.
        codec: the compression of the new files; None if it was left to the engine.
        notes: notes for the report.
        engine: the engine that wrote the new files.
        seconds: how long the unit took; None if the work was interrupted by a crash.
        finished: when it was swapped (ISO 8601, UTC); None if that was not recorded.
        dark_columns: columns under shredded keys that were copied byte for byte: ``column``, ``key_id``, ``files`` and
            ``rows``.
        purged_columns: columns that were replaced by nulls, in the same form, with their former keys.
    """

    name: str
    files: int
    rows: int
    bytes_before: int
    bytes_after: int
    old_location: str
    new_location: str
    verified: bool
    not_authenticated: tuple[str, ...] = ()
    codec: str | None = None
    notes: tuple[str, ...] = ()
    engine: str = "spark"
    seconds: float | None = None
    finished: str | None = None
    dark_columns: tuple[Mapping[str, Any], ...] = ()
    purged_columns: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UnitOutcome:
        """Return the outcome from the values in a journal.

        Raises:
            VerificationError: no release writes such values.
        """
        try:
            named: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
            }
            found = cls(name=named.pop("unit"), **named)
            if found.finished is not None:
                datetime.fromisoformat(found.finished)
            numbers = (found.files, found.rows, found.bytes_before, found.bytes_after, found.seconds or 0)
            if not all(isinstance(number, int | float) for number in numbers):
                raise TypeError("a number is none")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise VerificationError(
                f"a unit's outcome is recorded as {values!r:.200}, which no release wrote; restore the state directory"
            ) from error
        return found
