"""Orphans: folders of runs whose table was dropped or re-created, or whose state directory was lost.

`expire` works from the journals of a table that exists.  Orphans are the folders that it cannot reach: below the
``.sparkcrypt`` folders beside tables, among the old folders in journals whose table no longer exists, and in a
partition's default folder if the partition points below ``.sparkcrypt``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, StorageError, VerificationError
from sparkcrypt.files.listing import STAGING_FOLDER, Entry, find_beside
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.audit.trust import AuditIndex
from sparkcrypt.ledger.journal.journal import (
    Journal,
    has_ended,
    has_expired,
    list_run_ids,
    list_table_ids,
    start_of_run,
)
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.lock import RunLock, acquire, acting_user
from sparkcrypt.ledger.state.mac import MasterKeys, has_mac_key, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import (
    UnitOutcome,
    base_location,
    is_staged,
    list_folders,
    moved_place,
    old_folder,
    run_of_folder,
    staging_folder,
)
from sparkcrypt.paths import comparable_path, is_within, split_path, walk_up
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import ExpiryOptions
from sparkcrypt.runs.old_folders.old_folder import OldFolder, Writers, expired_folders
from sparkcrypt.runs.table.disposal import Disposal, describe_foreign
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.skipping.trusted.sidecar import SIDECAR
from sparkcrypt.spark.files.hadoop import FileStatus, HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder that a run left.

    Attributes:
        folder: its path.
        kind: as in `Orphan`.
        base: the original folder of its table, beside which runs put their files.
        why_kept: why it is not deleted; None if it may be.
        since_ms: when the run last wrote to its journal, in milliseconds since the epoch; 0 if that is not known.
        run_id: the run, if only the names of folders tell of it; empty otherwise.
    """

    folder: str
    kind: str
    base: str
    why_kept: str | None = None
    since_ms: int = 0
    run_id: str = ""


def leftovers_of_journals(
    store: StateStore, policy: Policy, files: HadoopFiles, tables: Mapping[str, str]
) -> tuple[set[str], dict[str, Leftover]]:
    """Return the folders that journals name, in comparable form.

    Args:
        store: the state directory.
        policy: the policy whose key service authenticates journals.
        files: the file system.
        tables: table id -> original folder, of the tables that exist.

    Returns:
        The folders of existing tables' runs, which `expire` handles; and folder -> leftover, for other tables.
    """
    looked_after: set[str] = set()
    leftovers: dict[str, Leftover] = {}
    for table_id in list_table_ids(store):
        if table_id in tables:
            log = TableLog.open(store, table_id, None)
            for run_id in Journal.runs(log, archived=False):
                try:
                    looked_after |= _list_looked_after(Journal.open(log, run_id), tables[table_id])
                except (VerificationError, LookupError, TypeError, ValueError):  # damaged or forged: `expire` names it
                    looked_after.add(_comparable(old_folder(tables[table_id], run_id)))
        else:
            found = left_of_table(store, policy, table_id, files)
            leftovers |= {_comparable(leftover.folder): leftover for leftover in found}
    return looked_after, leftovers


def left_of_table(store: StateStore, policy: Policy, table_id: str, files: HadoopFiles) -> Iterator[Leftover]:
    """Yield the folders that the runs of a dropped table left, as far as its audit or their paths confirm them.

    Raises:
        KeyServiceError: the key service did not unwrap the MAC key that authenticates the journals.
    """
    if not has_mac_key(store, table_id):
        return  # its journals cannot be authenticated
    mac = open_mac(store, table_id, open_key_service(policy.key_service), MasterKeys.of(policy))
    try:
        log = TableLog.open(store, table_id, mac)
    except VerificationError:
        return
    named = {_comparable(folder) for folder in AuditIndex.of(log).folders}
    for run_id in Journal.runs(log, archived=False):
        try:
            journal = Journal.open(log, run_id)
        except VerificationError:
            continue
        for leftover in _find_left_by(journal, files):
            if _comparable(leftover.folder) in named or old_folder(leftover.base, run_id) in leftover.folder:
                yield leftover


def _list_looked_after(journal: Journal, base: str) -> set[str]:
    """Return the folders of a run whose table exists, without those of new files, which are in use or were dropped.

    Old folders are included by their former and by their present path, if a RENAME of the table has moved them.
    """
    if has_expired(journal):
        return set()
    found = set()
    for status in journal.statuses().values():
        if status.swapped:
            old = OldFolder(journal, status).locations
            moved = [moved_place(place, status.base, base) or place for place in old]
            found |= {_comparable(place) for place in (*old, *moved)}
        elif status.step == "unit_rolled_back":
            found.add(_comparable(status.outcome.new_location))
    outcomes = [
        UnitOutcome.from_dict(record.fields["outcome"])
        for record in journal.records
        if record.unit is not None and "outcome" in record.fields
    ]
    new = {_comparable(outcome.new_location) for outcome in outcomes}
    staged = {_comparable(record.staged) for record in journal.records if record.staged is not None}
    return found | (staged - new if has_ended(journal) else staged)


def _find_left_by(journal: Journal, files: HadoopFiles) -> Iterator[Leftover]:
    """Yield the folders of units that a run of a dropped table swapped; those rolled back belonged to the table."""
    if journal.run.options.get("output"):
        return  # its source is no old folder
    since = int(datetime.fromisoformat(journal.last.time).timestamp() * 1000)
    expired = expired_folders(journal.records)
    for old in OldFolder.list_of(journal):
        base = base_location(old.status.staged)
        if comparable_path(old.location) not in expired:
            yield Leftover(old.location, "old", base, _find_unknown(files, old), since)
        if "/" not in journal.run.table:  # a bare folder is in use, although no table refers to it
            yield Leftover(old.status.new_location, "new", base, None, since)


def _find_unknown(files: HadoopFiles, old: OldFolder) -> str | None:
    """Return why an old folder must stay: it contains files that its run does not know; None if it may go."""
    came = old.compare(old.location, list_folders(files, old.location)).places
    if not came:
        return None
    return (
        f"{came[0]} is in it, which its run does not know; read it with spark.read.parquet, insert what is missing "
        "into a table, and only then delete it"
    )


def _comparable(folder: str) -> str:
    return comparable_path(folder).rstrip("/")


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
        self.files, self._catalog = HadoopFiles(spark), Catalog(spark)
        self.in_use = InUse(spark, None, OtherTables(spark, policy.aliases))
        self._places = self.in_use.look()
        tables = [table for name in self._catalog.databases() for table in self._catalog.all_of(name)]
        self._tables = [table for table in tables if table.kind != "VIEW" and table.location]
        bases = {table.uuid: base_location(table.location) for table in self._tables if table.uuid}
        self._run_ids = list_run_ids(self.store)
        self._known, self._left = leftovers_of_journals(self.store, policy, self.files, bases)
        self._above_known = {above for place in self._known for above in islice(walk_up(place), 1, None)}
        self._staged: dict[str, dict[str, list[str]]] = {}

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
        if inside or place in self._above_known:
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
        below = {comparable_path(root).rstrip("/") for root in roots}
        every = path is None and not databases
        for place, leftover in self._left.items():
            if f"/{STAGING_FOLDER}/" not in place and (every or not below.isdisjoint(islice(walk_up(place), 1, None))):
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
        staged = self._list_staged(base).get(run_id or "", ())
        unused = [place for place in staged if self._places.user_of(place) is None]
        if unused:
            return f"its rows may be nowhere else: {unused[0]} was staged to replace it, and nothing uses that"
        if not staged and not (self.files.exists(base) and self.files.data_files(base)):
            return f"its rows may be nowhere else: {base} has none"
        return None

    def _list_staged(self, base: str) -> Mapping[str, Sequence[str]]:
        """Return run -> the folders in which it staged files beside a table; they are listed once."""
        if base not in self._staged:
            found: dict[str, list[str]] = {}
            for child in self.files.children(staging_folder(base)):
                if child.is_folder and not _is_old(child.path):
                    found.setdefault(run_of_folder(child.path) or "", []).append(child.path)
            self._staged[base] = found
        return self._staged[base]

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


LEAST_SECONDS = 24 * 3600
"""The minimum age of listed orphans: folders that runs of another state directory are staging look the same."""

_YOUNG = (
    "something in it changed since --older-than; this state directory does not know its run: restore it from a backup, "
    "or correct run_state; if there is none, give the command again later"
)
ORPHANS = "orphans"
"""Used as the table id if the table is not known."""
DELETE = "delete"


def find_orphans(
    spark: SparkSession,
    policy: Policy,
    *,
    databases: tuple[str, ...] = (),
    path: str | None = None,
    older_than_seconds: float = 7 * 86_400,
    delete: bool = False,
) -> list[Orphan]:
    """Find orphans, and optionally delete those that may go.

    Args:
        spark: a classic session.
        policy: the policy whose state directory contains the live runs.
        databases: the databases beside whose tables to search; all of them by default.
        path: search below this folder instead.
        older_than_seconds: list only folders in which nothing has changed for this time, except old files of a run
            that the state directory does not know, which are listed at once, and kept until then.
        delete: delete old files, and audit each deletion.  Files that a run staged are never deleted, since they may be
            the only copy of the rows of a dropped external table.

    Raises:
        RunConflictError: another process deletes orphans under the same state directory.
        KeyServiceError: the key service did not open the audit; nothing was deleted.
        ConfigError: ``older_than_seconds`` is less than a day.
        PlanError: the partitions of a table could not be listed, so it is not known which folders are in use.
    """
    if older_than_seconds < LEAST_SECONDS:
        raise ConfigError(
            f"--older-than of {older_than_seconds:,.0f} seconds: allowed: 24h or more, since what runs of another "
            "state directory are staging looks the same"
        )
    search = OrphanSearch(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = []
    for orphan in search.find_all(databases, path):
        if orphan.newest_ms < before_ms:
            found.append(orphan)
        elif orphan.kind == "old" and orphan.of_unknown_run and orphan.files:
            found.append(replace(orphan, why_kept=orphan.why_kept or _YOUNG))
    return _delete(search, found, ORPHANS) if delete else found


def expire_left(search: OrphanSearch, table_id: str, options: ExpiryOptions) -> list[Orphan]:
    """Delete the old files of runs whose table no longer exists, or of a bare folder; each deletion is audited.

    Args:
        search: a search that began before; the tables of a command share it.
        table_id: the table's UUID, or the folder's id.
        options: a run that wrote to its journal more recently than they say keeps its old files.

    Raises:
        RunConflictError: a run holds the table.
        ConfigError: no run of it is known.
        PlanError: the partitions of a table could not be listed, so it is not known which folders are in use.
    """
    if not search.store.list(f"log/{table_id}/"):
        raise ConfigError(f"{table_id}: no run is known in this state directory; `sparkcrypt backfill list` lists them")
    before_ms = int((time.time() - options.older_than_seconds) * 1000)
    found = [orphan for orphan in search.find_left_of(table_id) if orphan.newest_ms <= before_ms]
    return found if options.dry_run else _delete(search, found, table_id)


def _delete(search: OrphanSearch, found: list[Orphan], table_id: str) -> list[Orphan]:
    """Delete those orphans that may go, unless they are in use or anything in them has changed.

    Each deletion is recorded in the audit of ``table_id``, which is `ORPHANS` if the table is not known.
    """
    if all(orphan.why_kept for orphan in found):
        return found
    command, policy = ORPHANS if table_id == ORPHANS else "expire", search.policy
    with acquire(search.store, table_id, run_id=command, owner=acting_user()) as lock:
        lock.keep_alive()
        mac = open_mac(search.store, table_id, open_key_service(policy.key_service), MasterKeys.of(policy), renew=True)
        audit = AuditWriter(TableLog.open(search.store, table_id, mac), lock.token)

        def note_deletion(orphan: Orphan) -> None:
            unit = {"unit": orphan.folder, "kind": orphan.kind, "files": orphan.files, "bytes": orphan.total_bytes}
            audit.append(make_entry(DELETE, policy.digest(), command, unit=unit))

        return _delete_unchanged(search, found, lock, note_deletion)


def _delete_unchanged(
    search: OrphanSearch, found: list[Orphan], lock: RunLock, note_deletion: Callable[[Orphan], None]
) -> list[Orphan]:
    going = {orphan.folder: orphan for orphan in found if orphan.why_kept is None}
    bases = {folder: orphan.base for folder, orphan in going.items()}
    writers = {base: Writers(search.files, base) for base in bases.values()}
    kept = {folder: _find_writer(writers[base], folder) for folder, base in bases.items()}
    disposal = Disposal(search.files, search.in_use, "", ASIDE, lock.check, bases, asks_all=True)

    def inspect(folder: str, place: str) -> str | None:
        if search.list_contents(place) != going[folder].contents:
            return f"{folder}: files came or went since it was looked at; it stays, run again"
        return _find_writer(writers[bases[folder]], folder)

    wanted = [folder for folder, why in kept.items() if why is None]
    kept |= disposal.delete(wanted, inspect=inspect, deleted=lambda folder: note_deletion(going[folder]))
    return [
        orphan
        if orphan.why_kept
        else replace(orphan, why_kept=kept[orphan.folder], deleted=kept[orphan.folder] is None)
        for orphan in found
    ]


def _find_writer(writers: Writers, folder: str) -> str | None:
    """Return the message that a writer may commit to a folder; to an orphan below ``.sparkcrypt`` none does."""
    writing = None if is_staged(folder) else writers.find(folder)
    if writing is None:
        return None
    return f"{writing} is there, so a writer may still commit to {folder}; delete that if its writer was killed"
