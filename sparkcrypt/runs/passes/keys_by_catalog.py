"""Search for the master keys in use, and for what needs their older versions.

It looks into every table of the catalog, and into what the state directory knows besides: files, old files that wait
for expiry, and records.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkcrypt.decide.access_log import read_tables_read
from sparkcrypt.errors import SparkcryptError, VerificationError
from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.material import version_of
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.paths import Place, PlaceIndex
from sparkcrypt.policy.key_service import kind_of, split_former
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.runs.old_folders.old_folder import count_awaiting_expiry
from sparkcrypt.runs.passes.keys_in_use import (
    Coverage,
    RecordedPlace,
    TableUse,
    count_uses,
    list_table_ids,
    read_key_use,
)
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.footers import DriverFooters, TaskFooters, own_keys
from sparkcrypt.runs.table.scan import read_units
from sparkcrypt.runs.table.target import find_other_kind, id_of, target_folder_id, units_of
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class KeysInUse:
    """The master keys in use.

    Attributes:
        tables: the tables of the catalog and the folders of which the footers were read.
        recorded: what the state directory knows and is no table of the catalog: the use is the last that it recorded.
        coverage: what was looked at, and what was not.
    """

    tables: tuple[TableUse, ...]
    recorded: tuple[TableUse, ...]
    coverage: Coverage


def find_keys_in_use(
    spark: SparkSession, policy: Policy, *, leave_out: Collection[str] = (), anew: bool = False, keeps: bool = True
) -> KeysInUse:
    """Read the footers of every Parquet and ORC table of the catalog, and of the folders that runs worked on.

    A table is looked at whatever its tags are and whoever wrote it, in Spark tasks if it has many files.

    Args:
        spark: a classic session.
        policy: the policy with the key service, which opens footers.
        leave_out: tables to ignore, by their names or their ids, such as tables that were dropped.
        anew: read every footer; otherwise those that the state directory has, of files that have not changed, are not
            read again.
        keeps: store what was read for the next time; False for commands that change nothing.

    Raises:
        StorageError: the metastore cannot be reached.
        ConfigError: the state directory cannot be opened.
    """
    search = _Search(spark, policy, leave_out, anew=anew, keeps=keeps)
    for table in search.list_tables():
        search.look_at(id_of(table), table.full_name, partial(units_of, spark, table))
    search.look_at_others()
    search.list_by_record()
    return KeysInUse(tuple(search.tables), tuple(search.recorded), search.coverage)


class _Search:
    """A search for the master keys in use, which collects what it finds."""

    def __init__(
        self, spark: SparkSession, policy: Policy, leave_out: Collection[str], *, anew: bool, keeps: bool
    ) -> None:
        self._catalog, self._policy, self._anew, self._keeps = Catalog(spark), policy, anew, keeps
        self._leave_out, self._files = frozenset(leave_out), HadoopFiles(spark)
        self._store = open_state_directory(spark, policy.run_state)
        driver = DriverFooters(self._files, own_keys(policy.key_service))
        self._reader = TaskFooters(spark, policy.key_service, driver)
        self._names: set[str] = set()
        self._locations: list[str] = []
        self._folders = PlaceIndex[None](())
        self._ids: set[str] = set()
        self.tables: list[TableUse] = []
        self.recorded: list[TableUse] = []
        self.coverage = Coverage()

    def list_tables(self) -> Iterator[Table]:
        """Yield the tables of the catalog in a format that can be encrypted, except those that were left out."""
        catalog = self._catalog
        for name in (name for database in catalog.databases() for name in catalog.tables(database)):
            table = catalog.find(name)
            if table is None:
                continue  # dropped meanwhile
            self._names.add(normalized_table(table.full_name))
            if table.location:
                self._locations.append(table.location)
            reason = find_other_kind(table)
            if reason is not None:
                self.coverage.passed_over[table.full_name] = reason
            elif not self._is_left_out(table.full_name, id_of(table)):
                yield table

    def look_at(self, table_id: str, name: str, list_units: Callable[[], Iterable[Unit]]) -> None:
        """Read the footers of a table or folder; if some cannot be read, nobody can tell all of its keys."""
        self._ids.add(table_id)
        cache = None if self._anew else FooterCache(self._store, table_id, name=name, keeps=self._keeps)
        read: list[tuple[FooterFacts, int]] = []
        errors: list[str] = []
        try:
            for unit, found in read_units(list_units(), self._files, self._reader, cache):
                if not unit.files and self._is_lost(table_id, unit):
                    errors.append(f"{unit.location}: is not there, and had files")
                read += [(facts, file.length) for file in unit.files if (facts := _facts_of(found[file.path]))]
                errors += [_describe(path, error) for path, error in found.items() if not _facts_of(error)]
        except SparkcryptError as error:
            errors.append(str(error))
        self.tables.append(count_uses(self._store, table_id, name, read))
        self.coverage.files += len(read)
        if errors:
            what = "place" if len(errors) == 1 else "places"
            self.coverage.not_looked_at[name] = (
                f"{len(errors):,} {what} could not be read, so nobody can tell the keys; {errors[0]}"
            )
        else:
            self.coverage.tables += 1

    def look_at_others(self) -> None:
        """Look at the folders on which runs worked, and those to which they copied; keep the other records."""
        for table_id in sorted(set(list_table_ids(self._store)) - self._ids):
            use = read_key_use(self._store, table_id)
            if self._is_left_out(use.name, table_id):
                continue
            for folder in {*self._list_outputs(table_id), *([use.name] if "/" in use.name else [])}:
                if self._files.exists(folder):
                    self.look_at(target_folder_id(folder), folder, partial(_unit_of_folder, folder))
            if table_id not in self._ids:
                self.recorded.append(use)

    def list_by_record(self) -> None:
        """List the tables and folders that only lineage, or the access log, names, once all tables are known."""
        folders = (*self._locations, *(use.name for use in self.tables if "/" in use.name))
        self._folders = PlaceIndex((Place.of(folder), None) for folder in folders)
        self.coverage.by_record += [
            RecordedPlace(source, f"the lineage of {use.name} names it", frozenset(use.keys))
            for use in (*self.tables, *self.recorded)
            for source in sorted(use.sources)
            if not self._is_known(source)
        ]
        self.coverage.by_record += list_logged(self._policy, self._is_known)

    def _is_known(self, name: str) -> bool:
        if "/" in name:
            return any(True for _ in self._folders.find_above(Place.of(name)))
        return normalized_table(name) in self._names or bool({name} & self._leave_out)

    def _is_left_out(self, name: str, table_id: str) -> bool:
        if not {name, table_id} & self._leave_out:
            return False
        self._ids.add(table_id)
        self.coverage.left_out.append(name)
        return True

    def _is_lost(self, table_id: str, unit: Unit) -> bool:
        """Tell whether a folder without files is missing, of a table that is known to have had encrypted files."""
        if self._files.exists(unit.location):
            return False
        use = read_key_use(self._store, table_id)
        return bool(use.keys or use.kept)

    def _list_outputs(self, table_id: str) -> Iterator[str]:
        log = TableLog.open(self._store, table_id, None)
        for run_id in Journal.runs(log):
            try:
                output = Journal.open(log, run_id).run.output
            except VerificationError:
                continue  # commands that act on the journal report the error
            if output:
                yield self._files.qualify(output.rstrip("/"))


def list_logged(policy: Policy, is_known: Callable[[str], bool]) -> Iterator[RecordedPlace]:
    """Yield the tables that were read by the access log, and are not known.

    Args:
        policy: the policy that names the log; if it names none, nothing is yielded.
        is_known: tells whether a table of this name is in the catalog.
    """
    if policy.access_log is None:
        return
    location = policy.access_log.location.removeprefix("file://")
    try:
        read = read_tables_read(Path(location))
    except SparkcryptError as error:
        yield RecordedPlace(location, f"tables that only the access log names are not known: {error}", frozenset())
        return
    for (table, key_id), last in sorted(read.items()):
        if not is_known(table):
            reason = f"the access log says that it was read under {key_id!r} on {last}"
            yield RecordedPlace(table, reason, frozenset((key_id,)))


def _unit_of_folder(folder: str) -> tuple[Unit, ...]:
    return (Unit(folder, folder, None, "", {}),)


def _facts_of(found: Found) -> FooterFacts | None:
    return found if isinstance(found, FooterFacts) else None


def _describe(path: str, error: Found) -> str:
    text = str(error)
    return text if path in text else f"{path}: {text}"


RECORDS = ("keys/macs/", "keys/indexes/", "log/")
"""Folders of the state directory with wrapped MAC keys of audits and wrapped secrets of runs' digests.

A table's KEKs do not need a version: under an older one they wrap nothing new, and files contain those that they need.
"""
_NO_TABLE = "which belong to no table, so a rotation does not rewrap them"
_OLDER = "under an older version, or one that its key service keeps to itself"


@dataclass(frozen=True, slots=True)
class Need(JsonObject):
    """A table or record that needs older versions, and the reason, with what removes it."""

    what: str
    reason: str


def find_needs(spark: SparkSession, policy: Policy, key_id: str, below: int, found: KeysInUse) -> Iterator[Need]:
    """Yield every known reason to keep a master key's versions below a number.

    Args:
        spark: a classic session.
        policy: the policy whose key service has the key.
        key_id: the master key.
        below: the first version that would stay.
        found: the keys in use.
    """
    store, files = open_state_directory(spark, policy.run_state), HadoopFiles(spark)
    for use in found.tables:
        held = use.keys.get(key_id)
        amount = Amount() if held is None else held.count_below(below)
        if amount.files:
            text = f"{count_of(amount.files, 'file')} under an older version"
            yield Need(use.name, f"{text}; {_NO_TABLE if '/' in use.name else '`sparkcrypt rotate` rewraps them'}")
        before = read_key_use(store, use.table_id)  # a later run may have brought its files under another key
        log = TableLog.open(store, use.table_id, None)
        waiting = count_awaiting_expiry(log, files.exists, policy.grace_seconds).files
        if waiting and (use.holds(key_id) or before.holds(key_id)):
            yield Need(
                use.name,
                f"{count_of(waiting, 'old file')} may be under an older version until `sparkcrypt backfill expire` "
                "deletes them",
            )
    for table, reason in found.coverage.not_looked_at.items():
        step = "see `sparkcrypt keys check`, or give --leave-out with its name if nothing of it is under the key"
        yield Need(table, f"{reason}; {step}")
    for use in found.recorded:
        cached = use.keys.get(key_id)
        if not use.keys or (cached is not None and cached.count_below(below).files):
            yield Need(
                use.name,
                f"is no table of this catalog now, and {_OLDER}, or nobody can tell; give --leave-out with its name if "
                "its files are gone",
            )
    yield from find_records(store, key_id, below, split_former(policy.key_service)[0].type)


def find_records(store: StateStore, key_id: str, below: int, service_type: str) -> Iterator[Need]:
    """Yield the records of a state directory that contain a key or secret wrapped by an older version of a master key.

    Texts in the form of another type of key service than ``service_type`` are ignored: a former one wrapped them.
    """
    for kind in RECORDS:
        for name in store.list(kind):
            with contextlib.suppress(ValueError):  # a torn record is not used for anything
                objects = walk_record(store.read(name) or b"")
                if any(_is_needed(record, key_id, below, service_type) for record in objects):
                    yield Need(
                        name,
                        "holds a MAC key or a digest secret under an older version; audits are proven with it, so the "
                        "key of audits keeps its versions",
                    )


def walk_record(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield every object in the bytes of a record of a state directory, or of one that has several, a line each.

    Raises:
        ValueError: it is torn.
    """
    for line in content.splitlines():
        yield from walk_objects(json.loads(line))


def walk_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object inside a JSON value, also in strings of JSON, as which packs contain entries."""
    if isinstance(value, str) and value.startswith("{"):
        with contextlib.suppress(ValueError):
            yield from walk_objects(json.loads(value))
    elif isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk_objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk_objects(inner)


def _is_needed(record: dict[str, Any], key_id: str, below: int, service_type: str) -> bool:
    wrapped = record.get("wrapped")
    if record.get("key_id") != key_id or not isinstance(wrapped, str):
        return False
    return kind_of(wrapped) in ("", service_type) and version_of(wrapped) < below
