"""Folders of runs that nobody knows any more: their table was dropped or made anew, or the state directory was lost.

`expire` works from the journals of a table that is there.  What it cannot reach is found here: below the
``.sparkcrypt`` folders beside tables, among the old folders of journals whose table is gone, and where a partition
points below ``.sparkcrypt`` while files are in the folder that it would have by its name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.in_use import Disposal, InUse, OtherTables
from sparkcrypt.backfill.leftovers import Leftover, left_of_table, leftovers_of_journals
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.units import STAGING_FOLDER, base_location, staging_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import ConfigError, SourceChangedError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog, Table
from sparkcrypt.spark.files import FileStatus, HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_SECONDS = 24 * 3600
"""The youngest that is ever listed: what another state directory's runs are staging looks the same."""

_BEGAN = re.compile(rf"/{re.escape(STAGING_FOLDER)}/[^/]+/(?:old-|trash-)?(\d{{8}}T\d{{6}})Z-")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A folder that no table, no partition and no live run knows.

    Attributes:
        folder: where it is.
        kind: ``old`` files, what was ``staged``, or ``new`` files, which were the table's.
        files: how many.
        total_bytes: their length.
        newest_ms: when anything in it changed last, in milliseconds since the epoch.
        base: the original folder of its table.
        why_kept: why it is not deleted; None where it may be.
        deleted: it is gone.
    """

    folder: str
    kind: str
    files: int
    total_bytes: int
    newest_ms: int
    base: str
    why_kept: str | None = None
    deleted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "folder": self.folder,
            "kind": self.kind,
            "files": self.files,
            "bytes": self.total_bytes,
            "newest_ms": self.newest_ms,
            "why_kept": self.why_kept,
            "deleted": self.deleted,
        }


def find_orphans(
    spark: SparkSession,
    policy: Policy,
    *,
    databases: tuple[str, ...] = (),
    path: str | None = None,
    older_than_seconds: float = 7 * 86_400,
    delete: bool = False,
) -> list[Orphan]:
    """Find folders of runs that nobody knows, and delete those that may go, if that is asked.

    Args:
        spark: a classic session.
        policy: whose state directory tells of live runs.
        databases: beside whose tables to look; all of them by default.
        path: look below this folder instead.
        older_than_seconds: nothing in it changed for so long.
        delete: delete old and staged files.  New files are never deleted, since the rows of a dropped external table
            may be there alone.

    Raises:
        ConfigError: less than a day was asked for.
        PlanError: the partitions of a table could not be listed, so nobody can tell what is in use.
    """
    if older_than_seconds < LEAST_SECONDS:
        raise ConfigError(
            f"--older-than of {older_than_seconds:,.0f} seconds: allowed: 24h or more, since what runs of another "
            "state directory are staging looks the same"
        )
    search = _Search(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = [one for one in search.orphans(databases, path) if one.newest_ms < before_ms]
    return [search.deleted(one) if delete and one.why_kept is None else one for one in found]


def expire_left(
    spark: SparkSession, policy: Policy, table_id: str, *, older_than_seconds: float, dry_run: bool
) -> list[Orphan]:
    """Delete the old files of runs whose table is gone, or of a bare directory.

    Args:
        spark: a classic session.
        policy: whose state directory holds the journals.
        table_id: the table's UUID, or that of the directory.
        older_than_seconds: a run that wrote later keeps its old files.
        dry_run: tell, and change nothing.

    Raises:
        ConfigError: no run of it is known.
        PlanError: the partitions of a table could not be listed, so nobody can tell what is in use.
    """
    store = open_states(spark, policy.run_state, outside=f"{policy.run_state}/.nothing")
    if not store.list(f"runs/{table_id}/"):
        raise ConfigError(f"{table_id}: no run is known in this state directory; `sparkcrypt backfill list` lists them")
    search = _Search(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = [one for one in search.left_of(table_id) if one.newest_ms <= before_ms]
    return [one if dry_run or one.why_kept else search.deleted(one) for one in found]


class _Search:
    """What is in use and what journals know, at one moment."""

    def __init__(self, spark: SparkSession, policy: Policy) -> None:
        self._policy = policy
        self._store = open_states(spark, policy.run_state, outside=f"{policy.run_state}/.nothing")
        self._spark, self._files, self._catalog = spark, HadoopFiles(spark), Catalog(spark)
        self._in_use = InUse(spark, None, OtherTables(spark))
        self._places = self._in_use.look()
        tables = [table for name in self._catalog.databases() for table in self._catalog.all_of(name)]
        self._tables = [table for table in tables if table.kind != "VIEW" and table.location]
        uuids = {table.uuid for table in self._tables if table.uuid}
        self._known, self._left = leftovers_of_journals(self._store, policy, self._files, uuids)

    def orphans(self, databases: tuple[str, ...], path: str | None) -> Iterator[Orphan]:
        """Yield every orphan, each once."""
        seen: set[str] = set()
        wanted = {name.lower() for name in databases}
        roots = self._roots(wanted) if path is None else [self._files.qualified(path.rstrip("/"))]
        for one in (*self._staged(roots), *self._left_behind(roots, wanted, path)):
            place = comparable_path(one.folder).rstrip("/")
            if place not in seen and place not in self._known:
                seen.add(place)
                yield one

    def left_of(self, table_id: str) -> Iterator[Orphan]:
        """Yield the old folders of one table that is gone, or of a bare directory."""
        for one in left_of_table(self._store, self._policy, table_id, self._files):
            if one.kind == "old" and self._places.user_of(one.folder) is None and self._files.exists(one.folder):
                yield replace(self._orphan(one.folder, one), newest_ms=one.since_ms)

    def deleted(self, one: Orphan) -> Orphan:
        """Delete an orphan, unless somebody uses it or anything in it changed."""
        disposal = Disposal(self._files, self._in_use, one.base, "orphans", lambda: None)

        def inspect(folder: str, place: str) -> None:
            now = list(self._files.walk(place))
            if len(now) != one.files or sum(file.length for file in now) != one.total_bytes:
                raise SourceChangedError(f"{folder}: files came or went since it was looked at; it stays, run again")

        try:
            used = disposal.delete([one.folder], inspect=inspect)
        except SourceChangedError as error:
            return replace(one, why_kept=str(error))
        return replace(one, why_kept=used[one.folder]) if one.folder in used else replace(one, deleted=True)

    def _roots(self, databases: set[str]) -> list[str]:
        """Return the folders beside which runs of some databases, or of all, put their files."""
        places = [
            base_location(table.location).rpartition("/")[0]
            for table in self._tables
            if not databases or table.database.lower() in databases
        ]
        for name in self._catalog.databases():
            default = self._catalog.default_location(f"{name}.t") if not databases or name in databases else None
            places += [default.rpartition("/")[0]] if default else []
        return sorted(set(places))

    def _staged(self, roots: list[str]) -> Iterator[Orphan]:
        for root in roots:
            top = root if root.endswith(f"/{STAGING_FOLDER}") else f"{root}/{STAGING_FOLDER}"
            if self._files.exists(top):
                for table in self._files.children(top):
                    for run in self._files.children(table.path) if table.is_folder else ():
                        yield from self._unused(run, "old" if run.name.startswith(("old-", "trash-")) else "new")

    def _unused(self, folder: FileStatus, kind: str) -> Iterator[Orphan]:
        """Yield the largest folders, from one on down, to which nobody points, nor into them."""
        place = comparable_path(folder.path).rstrip("/")
        if self._places.uses(place) or place in self._known:
            return
        inside = self._places.user_of(folder.path) is not None
        if inside or any(known.startswith(place + "/") for known in self._known):
            for child in self._files.children(folder.path):
                if child.is_folder:
                    yield from self._unused(child, kind)
            return
        yield self._orphan(folder.path, self._left.get(place, Leftover(folder.path, kind, base_location(folder.path))))

    def _left_behind(self, roots: list[str], databases: set[str], path: str | None) -> Iterator[Orphan]:
        """Yield old folders that are not below a staging folder."""
        below = [comparable_path(root).rstrip("/") + "/" for root in roots]
        every = path is None and not databases
        for place, one in self._left.items():
            if f"/{STAGING_FOLDER}/" not in place and (every or place.startswith(tuple(below))):
                yield from self._outside(one)
        for table in self._tables:
            if every or table.database.lower() in databases:
                base = base_location(table.location)
                for folder, location in self._by_name(table):
                    yield from self._outside(Leftover(folder, "old", base, self._written_since(folder, location)))

    def _outside(self, one: Leftover) -> Iterator[Orphan]:
        if self._places.user_of(one.folder) is None and self._files.exists(one.folder):
            found = self._orphan(one.folder, one)
            if found.files:
                yield found

    def _written_since(self, folder: str, location: str) -> str | None:
        """Return why an old folder stays of which no journal tells: its rows may not be among the new ones."""
        start = _began_ms(location)
        files = self._files.data_files(folder) if self._files.exists(folder) else ()
        if start is None or not (self._files.exists(location) and self._files.data_files(location)):
            return f"its rows may be nowhere else: no run is seen to have written {location}"
        later = next((one.path for one in files if one.modified_ms >= start), None)
        return f"{later} was written after the run had begun that replaced its rows" if later else None

    def _by_name(self, table: Table) -> Iterator[tuple[str, str]]:
        """Yield the folders that a table's units would have by their names, and where a run put them instead."""
        base = base_location(table.location)
        partitions = self._catalog.partitions(table) if table.is_parquet and table.partition_columns else ()
        staging = comparable_path(staging_folder(base)) + "/"
        if not table.partition_columns and comparable_path(table.location).startswith(staging):
            yield base, table.location
        for one in partitions:
            if comparable_path(one.location).startswith(staging):
                yield f"{base}/{one.folder}", one.location

    def _orphan(self, folder: str, known: Leftover) -> Orphan:
        files = list(self._files.walk(folder))
        newest = max((one.modified_ms for one in [*files, *self._folders(folder)]), default=0)
        why = known.why_kept
        if known.kind == "new" and why is None:
            why = "new files: the rows of a dropped external table may be here alone; delete them yourself"
        total = sum(one.length for one in files)
        newest = max(newest, known.since_ms, _began_ms(folder) or 0)
        return Orphan(folder, known.kind, len(files), total, newest, known.base, why)

    def _folders(self, folder: str) -> Iterator[FileStatus]:
        yield self._files.status(folder)
        for child in self._files.children(folder):
            if child.is_folder:
                yield from self._folders(child.path)


def _began_ms(folder: str) -> int | None:
    """Return when the run began whose folder this is, in milliseconds since the epoch; None where that is not told."""
    began = _BEGAN.search(folder)
    if began is None:
        return None
    return int(datetime.strptime(began[1], "%Y%m%dT%H%M%S").replace(tzinfo=timezone.utc).timestamp() * 1000)
