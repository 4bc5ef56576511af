"""Search for the master keys in use: in every table of the catalog, and in what the state directory knows besides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcrypt.decide.access.read import read_tables_read
from sparkcrypt.errors import PlanError, SparkcryptError, VerificationError
from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.paths import is_within
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.runs.passes.keys_in_use import (
    Coverage,
    RecordedPlace,
    TableUse,
    count_uses,
    list_table_ids,
    read_key_use,
)
from sparkcrypt.runs.table.footers import DriverFooters, FooterCache, TaskFooters, own_keys
from sparkcrypt.runs.table.scan import read_units
from sparkcrypt.runs.table.target import find_other_kind, id_of, target_folder_id, units_of
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

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
        self._spark, self._policy, self._anew, self._keeps = spark, policy, anew, keeps
        self._leave_out, self._files = frozenset(leave_out), HadoopFiles(spark)
        self._store = open_state_directory(spark, policy.run_state)
        driver = DriverFooters(self._files, own_keys(policy.key_service))
        self._reader = TaskFooters(spark, policy.key_service, driver)
        self._names: set[str] = set()
        self._locations: list[str] = []
        self._ids: set[str] = set()
        self.tables: list[TableUse] = []
        self.recorded: list[TableUse] = []
        self.coverage = Coverage()

    def list_tables(self) -> Iterator[Table]:
        """Yield the tables of the catalog in a format that can be encrypted, except those that were left out."""
        catalog = Catalog(self._spark)
        for name in (name for database in catalog.databases() for name in catalog.tables(database)):
            try:
                table = catalog.table(name)
            except PlanError as error:
                if catalog.exists(name):
                    self.coverage.not_looked_at[name.replace("`", "")] = str(error)
                continue
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
        """List the tables and folders that only lineage, or the access log, names."""
        self.coverage.by_record += [
            RecordedPlace(source, f"the lineage of {use.name} names it", frozenset(use.keys))
            for use in (*self.tables, *self.recorded)
            for source in sorted(use.sources)
            if not self._is_known(source)
        ]
        self.coverage.by_record += list_logged(self._policy, self._is_known)

    def _is_known(self, name: str) -> bool:
        if "/" in name:
            folders = (*self._locations, *(use.name for use in self.tables if "/" in use.name))
            return any(is_within(name, folder) for folder in folders)
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
        for run_id in Journal.runs(self._store, table_id):
            try:
                output = Journal.open(self._store, table_id, run_id).run.output
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
