"""Search for orphans: below ``.sparkcrypt`` folders, in journals, and in the default folders of moved partitions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkcrypt.errors import StorageError
from sparkcrypt.files.beside_data import STAGING_FOLDER, Entry, find_beside
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.journal.journal import list_run_ids, start_of_run
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.unit import base_location, is_staged, run_of_folder, staging_folder
from sparkcrypt.paths import comparable_path, is_within, split_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.journalled_folders import Leftover, left_of_table, leftovers_of_journals
from sparkcrypt.runs.table.disposal import describe_foreign
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.skipping.trusted.sidecar import SIDECAR
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.status import FileStatus
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASIDE = "orphans"
"""Used in place of the run id in the names of folders that are set aside."""
_ASIDE = re.compile(rf"/{re.escape(STAGING_FOLDER)}/[^/]+/trash-")
_BEGAN = re.compile(rf"/{re.escape(STAGING_FOLDER)}/[^/]+/(?:old-|trash-)?(\d{{8}}T\d{{6}}Z)-")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Orphan(JsonObject, json_names={"total_bytes": "bytes", "base": None, "contents": None, "of_unknown_run": None}):
    """A folder to which no table, partition or live run refers.

    Attributes:
        folder: its path.
        kind: ``old`` files, ``new`` files that a run staged, in use or not, or a ``store`` for data skipping.
        files: the number of files in it.
        total_bytes: their length in bytes.
        newest_ms: when anything in it last changed, in milliseconds since the epoch.
        base: the original folder of its table.
        contents: path below the folder, length and modification time of each file; a folder's length is -1.
        why_kept: why it is not deleted; None if it may be.
        deleted: whether it was deleted.
        of_unknown_run: whether the state directory has nothing of the run that left it, as after its loss.
    """

    folder: str
    kind: str
    files: int
    total_bytes: int
    newest_ms: int
    base: str
    contents: frozenset[tuple[str, int, int]] = field(default=frozenset(), repr=False)
    why_kept: str | None = None
    deleted: bool = False
    of_unknown_run: bool = False


class OrphanSearch:
    """A search for orphans, by the folders in use and the journals at the time of its creation.

    Args:
        spark: a classic session.
        policy: the policy whose state directory contains the live runs.
    """

    def __init__(self, spark: SparkSession, policy: Policy) -> None:
        self.policy = policy
        self.store = open_state_directory(spark, policy.run_state)
        self._spark, self.files, self._catalog = spark, HadoopFiles(spark), Catalog(spark)
        self.in_use = InUse(spark, None, OtherTables(spark, policy.aliases))
        self._places = self.in_use.look()
        tables = [table for name in self._catalog.databases() for table in self._catalog.all_of(name)]
        self._tables = [table for table in tables if table.kind != "VIEW" and table.location]
        bases = {table.uuid: base_location(table.location) for table in self._tables if table.uuid}
        self._run_ids = list_run_ids(self.store)
        self._known, self._left = leftovers_of_journals(self.store, policy, self.files, bases)

    def find_all(self, databases: tuple[str, ...], path: str | None) -> Iterator[Orphan]:
        """Yield every orphan, each once."""
        places: set[str] = set()
        wanted = {name.lower() for name in databases}
        roots = self._roots(wanted) if path is None else [self.files.qualify(path.rstrip("/"))]
        for orphan in (*self._find_staged(roots), *self._find_left_behind(roots, wanted, path)):
            place = comparable_path(orphan.folder).rstrip("/")
            if place not in places and place not in self._known and not holds_stores(self.policy, orphan.folder):
                places.add(place)
                yield orphan
        if path is None and not wanted:
            yield from self._find_gone_stores()

    def _find_gone_stores(self) -> Iterator[Orphan]:
        uuids = {table.uuid for table in self._tables if table.uuid}
        for folder, why in find_gone_stores(self.files, self.policy, uuids):
            yield self._describe_orphan(folder, Leftover(folder, "store", base_location(folder), why))

    def find_left_of(self, table_id: str) -> Iterator[Orphan]:
        """Yield the old folders of a table that no longer exists, or of a bare folder."""
        for leftover in left_of_table(self.store, self.policy, table_id, self.files):
            if (
                leftover.kind == "old"
                and self._places.user_of(leftover.folder) is None
                and self.files.exists(leftover.folder)
            ):
                yield replace(self._describe_orphan(leftover.folder, leftover), newest_ms=leftover.since_ms)

    def _roots(self, databases: set[str]) -> list[str]:
        """Return the parent folders of some databases' tables, or of all, in which runs put their ``.sparkcrypt``."""
        places = [
            base_location(table.location).rpartition("/")[0]
            for table in self._tables
            if not databases or table.database.lower() in databases
        ]
        for name in self._catalog.databases():
            default = self._catalog.default_location(f"{name}.t") if not databases or name in databases else None
            places += [default.rpartition("/")[0]] if default else []
        return sorted(set(places))

    def _find_staged(self, roots: list[str]) -> Iterator[Orphan]:
        for root in roots:
            top = root if root.endswith(f"/{STAGING_FOLDER}") else f"{root}/{STAGING_FOLDER}"
            if self.files.exists(top):
                for table in self.files.children(top):
                    for run in self.files.children(table.path) if table.is_folder else ():
                        kind = "old" if _is_old(run.path) else "new"
                        yield from _name_unlisted(run.path, kind, self._find_unused(run, kind))

    def _find_unused(self, folder: FileStatus, kind: str) -> Iterator[Orphan]:
        """Yield the topmost folders, starting with the given one, to or into which nothing points."""
        place = comparable_path(folder.path).rstrip("/")
        if self._places.uses(place) or place in self._known:
            return
        inside = self._places.user_of(folder.path) is not None
        if inside or any(known.startswith(place + "/") for known in self._known):
            for child in self.files.children(folder.path):
                if child.is_folder:
                    yield from self._find_unused(child, kind)
            return
        known = self._left.get(place)
        if known is None:
            why = self._tell_unswapped(folder.path) if kind == "old" else None
            run_id = run_of_folder(folder.path) or ""
            known = Leftover(folder.path, kind, base_location(folder.path), why, run_id=run_id)
        yield self._describe_orphan(folder.path, known)

    def _find_left_behind(self, roots: list[str], databases: set[str], path: str | None) -> Iterator[Orphan]:
        """Yield old folders outside of ``.sparkcrypt`` folders."""
        below = [comparable_path(root).rstrip("/") + "/" for root in roots]
        every = path is None and not databases
        for place, leftover in self._left.items():
            if f"/{STAGING_FOLDER}/" not in place and (every or place.startswith(tuple(below))):
                yield from _name_unlisted(leftover.folder, leftover.kind, self._find_outside(leftover))
        for table in self._tables:
            if every or table.database.lower() in databases:
                base = base_location(table.location)
                for folder, location in self._pair_by_name(table):
                    yield from _name_unlisted(folder, "old", self._find_moved(folder, location, base))

    def _find_moved(self, folder: str, location: str, base: str) -> Iterator[Orphan]:
        """Yield the default folder of a unit that a run moved, if nothing uses it and files are in it."""
        why, run_id = self._tell_unreplaced(folder, location), run_of_folder(location) or ""
        yield from self._find_outside(Leftover(folder, "old", base, why, run_id=run_id))

    def _find_outside(self, leftover: Leftover) -> Iterator[Orphan]:
        if self._places.user_of(leftover.folder) is None and self.files.exists(leftover.folder):
            found = self._describe_orphan(leftover.folder, leftover)
            if found.files:
                yield found

    def _tell_unswapped(self, folder: str) -> str | None:
        """Return why an old folder that no journal confirms must stay: its swap may be unfinished; None if it may go.

        Between the two renames of a swap, the rows are in the old folder and in the staged one, and in no other.
        """
        base, run_id = base_location(folder), run_of_folder(folder)
        beside = [child.path for child in self.files.children(staging_folder(base)) if child.is_folder]
        staged = [place for place in beside if run_of_folder(place) == run_id and not _is_old(place)]
        unused = [place for place in staged if self._places.user_of(place) is None]
        if unused:
            return f"its rows may be nowhere else: {unused[0]} was staged to replace it, and nothing uses that"
        if not staged and not (self.files.exists(base) and self.files.data_files(base)):
            return f"its rows may be nowhere else: {base} has none"
        return None

    def _tell_unreplaced(self, folder: str, location: str) -> str | None:
        """Return why an unjournalled old folder must stay: the new files may lack its rows; None if it may go."""
        start = _began_ms(location)
        files = self.files.data_files(folder) if self.files.exists(folder) else ()
        if start is None or not (self.files.exists(location) and self.files.data_files(location)):
            return f"its rows may be nowhere else: no run is seen to have written {location}"
        later = next((file.path for file in files if file.modified_ms >= start), None)
        return f"{later} was written after the run had begun that replaced its rows" if later else None

    def _pair_by_name(self, table: Table) -> Iterator[tuple[str, str]]:
        """Yield the default folders of those of a table's units that a run moved, and their present locations."""
        base = base_location(table.location)
        partitions = self._catalog.partitions(table) if table.format and table.partition_columns else ()
        if not table.partition_columns and is_staged(table.location):
            yield base, table.location
        for partition in partitions:
            if is_staged(partition.location):
                yield f"{base}/{partition.folder}", partition.location

    def _describe_orphan(self, folder: str, known: Leftover) -> Orphan:
        files = list(self.files.walk(folder))
        newest = max((child.modified_ms for child in [*files, *self._folders(folder)]), default=0)
        why = known.why_kept
        if known.kind == "new" and why is None and files:
            why = (
                "new files: the rows of a dropped external table may be here alone; read them with spark.read.parquet, "
                "and delete them only if every row is elsewhere, or nobody needs it"
            )
        if _ASIDE.search(comparable_path(folder)):
            why = (
                "it was set aside to be deleted, and that was cut short: run the command again; if its table is gone, "
                "look at it, and delete it if nobody needs its rows"
            )
        contents = self.list_contents(folder)
        if why is None:
            entries = (Entry(path[1:], length < 0, max(length, 0)) for path, length, _ in contents)
            why = describe_foreign(folder, find_beside(entries))
        total = sum(file.length for file in files)
        newest = max(newest, known.since_ms, _began_ms(folder) or 0)
        unknown = bool(known.run_id) and known.run_id not in self._run_ids
        return Orphan(folder, known.kind, len(files), total, newest, known.base, contents, why, of_unknown_run=unknown)

    def list_contents(self, folder: str) -> frozenset[tuple[str, int, int]]:
        """Return the contents of a folder as `Orphan.contents`; they do not change when the folder is renamed."""
        found: set[tuple[str, int, int]] = set()
        left = [(folder, "")]
        while left:
            place, relative = left.pop()
            for child in self.files.children(place):
                below = f"{relative}/{child.name}"
                found.add((below, -1, 0) if child.is_folder else (below, child.length, child.modified_ms))
                left += [(child.path, below)] if child.is_folder else []
        return frozenset(found)

    def _folders(self, folder: str) -> Iterator[FileStatus]:
        yield self.files.status(folder)
        for child in self.files.children(folder):
            if child.is_folder:
                yield from self._folders(child.path)


def _name_unlisted(folder: str, kind: str, found: Iterator[Orphan]) -> Iterator[Orphan]:
    """Yield what is found in a folder; if it cannot be listed, yield the folder itself with the error: it stays."""
    try:
        yield from found
    except StorageError as error:
        yield Orphan(folder, kind, 0, 0, 0, base_location(folder), why_kept=f"it cannot be looked through: {error}")


def _is_old(folder: str) -> bool:
    return folder.rpartition("/")[2].startswith(("old-", "trash-"))


def _began_ms(folder: str) -> int | None:
    """Return when a folder's run began, in milliseconds since the epoch; None if its name does not contain a run id."""
    began = _BEGAN.search(folder)
    return None if began is None else start_of_run(began[1])


def find_gone_stores(files: HadoopFiles, policy: Policy, uuids: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the folder of each store whose table no longer exists, and why it is listed.

    Args:
        files: the file system.
        policy: has the folder of stores.
        uuids: the UUIDs of all tables of the metastore.
    """
    place = policy.index_location
    if place is None:
        return
    place = place if split_path(place)[0] else f"file://{place}"
    for child in files.children(place) if files.exists(place) else ():
        if child.name not in uuids and _UUID.fullmatch(child.name) and files.exists(f"{child.path}/{SIDECAR}"):
            yield (
                child.path,
                f"a store for data skipping, and no table of this metastore has the UUID {child.name}; once no other "
                f"metastore has it either: `sparkcrypt index drop --uuid {child.name}`",
            )


def holds_stores(policy: Policy, folder: str) -> bool:
    """Return whether a folder is the policy's folder of stores, inside it or above it."""
    place = policy.index_location
    return place is not None and (is_within(folder, place) or is_within(place, folder))
