"""Creating, refreshing, verifying and dropping the store of a table of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.paths import is_within, split_path
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.index.reading_progress import ToldReader
from sparkcrypt.runs.index.table_files import choose_columns, find_files, partition_types
from sparkcrypt.runs.index.table_store import TableStore, find_store
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.shared_folders import locations_of_tables
from sparkcrypt.skipping.indexes.build import Built, Plan, create_store, read_kinds, refresh_store
from sparkcrypt.skipping.indexes.compare import Comparison, Freshness, compare_listing, verify_store
from sparkcrypt.skipping.indexes.entries import make_index
from sparkcrypt.skipping.indexes.files import DataFolder, RowReader, list_folder
from sparkcrypt.skipping.indexes.gatherers import FILTER_SHARE, LIST_VALUES
from sparkcrypt.skipping.indexes.partitions import partition_columns
from sparkcrypt.skipping.trusted.drop import drop_store
from sparkcrypt.skipping.trusted.write import standing_generation
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import refuse_shared_identity
from sparkcrypt.spark.tables.planning import plan_of
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tasks.index_rows import rows_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_PLACE = "the policy does not say where stores are; set index: {location: FOLDER} in it"


@dataclass(frozen=True, slots=True)
class IndexedTable(JsonObject):
    """The result of creating or refreshing a table's store.

    Attributes:
        table: ``db.table``.
        store: the store's folder.
        generation: the store's generation.
        objects: number of files in the store.
        read: number of files that were read for it.
        written: whether the store was written; False if nothing had changed.
        left_out: files that were changed a moment ago, or while they were read.
        unknown: ``column kind`` -> reason -> number of the read files about which the index has nothing.
    """

    table: str
    store: str
    generation: int
    objects: int
    read: int
    written: bool
    left_out: tuple[str, ...]
    unknown: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class TableIndex:
    """A table, its files, and its store, which may not exist yet; `open_table_index` returns it.

    Attributes:
        table: the table in the catalog.
        plan: the plan of its columns.
        data: its files.
        store: its store.
        read: reads the rows of its files.
    """

    table: Table
    plan: EncryptionPlan
    data: DataFolder
    store: TableStore
    read: RowReader

    def create(
        self,
        kinds: Mapping[str, Sequence[str]],
        *,
        most_values: int = LIST_VALUES,
        share: float = FILTER_SHARE,
        progress: Progress | None = None,
    ) -> Built:
        """Write a store, replacing an existing one.

        Args:
            kinds: column -> the kinds of its indexes, as named in stores.
            most_values: the maximum number of distinct values of a file in its list.
            share: the false positive rate of Bloom filters.
            progress: receives the number of files that are read.

        Raises:
            ConfigError: a column cannot be indexed, or the store cannot be written.
            VerificationError: a file is another table's, or is not authentic.
            KeyServiceError: a key is denied or not available.
        """
        columns = choose_columns(self.table, self.plan, tuple(kinds))
        listing = list_folder(self.data)
        by_name = {name.lower(): chosen for name, chosen in kinds.items()}
        indexes = tuple(
            make_index(name, kind, column.kind, most_values=most_values, false_positives=share)
            for name, column in columns.items()
            for kind in by_name[name.lower()]
        )
        names = [file.name for file in listing.settled]
        partitions = partition_columns(names, partition_types(self.table) if names else {}, {})
        plan = Plan(self.data, listing, self.store.uuid, columns, indexes, partitions, {})
        keys = self.store.make_keys({name: column.key for name, column in columns.items() if column.key is not None})
        built = create_store(
            self.store.folder, plan, keys, generation=self.store.record.read(), read=self._reader(progress)
        )
        self.store.record.keep(built.sidecar.generation)
        return built

    def refresh(self, progress: Progress | None = None) -> Built:
        """Update the store: read new and changed files, and encrypt each index under its column's current key.

        Args:
            progress: receives the number of files that are read.

        Raises:
            ConfigError: there is no store, or a file does not fit it.
            KeyAccessDeniedError: the key of an index is denied, so the index cannot be copied.
            RunConflictError: another process wrote the store meanwhile.
        """
        last = self._refuse_missing()
        opened = self.store.open(last)
        keys = self.store.choose_keys(opened, self.plan)
        built = refresh_store(self.store.folder, self.data, opened, keys, generation=last, read=self._reader(progress))
        self.store.record.keep(built.sidecar.generation)
        return built

    def verify(self) -> tuple[int, Comparison]:
        """Verify the store; return its generation, and its comparison with the table's files.

        Raises:
            ConfigError: there is no store.
            FormatError, VerificationError: the store is damaged, or forged.
        """
        opened = self.store.open(self._refuse_missing())
        return opened.sidecar.generation, verify_store(self.data, opened)

    def compare_listing(self) -> Freshness | None:
        """Compare the store with a listing of the files; None if there is no store, or its footer's key is denied."""
        sidecar = self.store.open_manifest()
        return None if sidecar is None else compare_listing(self.data, sidecar)

    def describe(self, built: Built) -> IndexedTable:
        """Return the result of `create` or `refresh` for reports."""
        return IndexedTable(
            self.table.full_name,
            self.store.folder.uri,
            built.sidecar.generation,
            len(built.sidecar.objects),
            built.read,
            built.written,
            built.left_out,
            {f"{column} {kind}": reasons for (column, kind), reasons in built.unknown.items()},
        )

    def _reader(self, progress: Progress | None) -> RowReader:
        return self.read if progress is None else ToldReader(self.read, self.table.full_name, progress)

    def _refuse_missing(self) -> int:
        """Return the last generation of the store; refuse a table without one."""
        if standing_generation(self.store.folder) is None:
            raise ConfigError(
                f"{self.table.full_name} has no store at {self.store.folder.uri}; make one with `sparkcrypt index "
                "create`"
            )
        return self.store.record.read()


def open_table_index(spark: SparkSession, name: str, policy: Policy) -> TableIndex:
    """Look up a table with its files and its store, without reading either.

    Args:
        spark: a classic session.
        name: ``db.table``.
        policy: has the folder of stores, and names the keys.

    Raises:
        PlanError: there is no such table, it is not a Parquet table, its tags allow no plan, or its UUID is another's.
        ConfigError: the policy has no folder of stores, the table has no UUID, or the store's folder overlaps with the
            table's.
    """
    table = Catalog(spark).table(name)
    refuse_shared_identity(spark, table)
    data, plan = find_files(spark, table, policy), plan_of(spark, table, policy)
    store = find_store(policy, table.uuid, open_state_directory(spark, policy.run_state))
    if store is None:
        raise ConfigError(
            _NO_PLACE
            if policy.index_location is None
            else f"{table.full_name} has no UUID, by which its store would be found; tag a column of it, or run "
            "`encrypt_table`"
        )
    for folder in (table.location, *(data.partitions or {}).values()):
        if is_within(store.folder.uri, folder) or is_within(folder, store.folder.uri):
            raise ConfigError(
                f"{store.folder.uri}: is inside or above {folder}, where {table.full_name} has files; give stores "
                "another place in the policy"
            )
    return TableIndex(table, plan, data, store, rows_in_tasks(spark, policy.key_service))


def index_table(
    spark: SparkSession,
    table: str,
    policy: Policy,
    *,
    columns: Iterable[str] = (),
    most_values: int = LIST_VALUES,
    false_positives: float = FILTER_SHARE,
    progress: Progress | None = None,
) -> IndexedTable:
    """Create a table's store for data skipping; without columns, refresh the existing one.

    Args:
        spark: a classic session; it is configured with the policy.
        table: ``db.table``.
        policy: has the folder of stores (``index.location``), and names the keys.
        columns: each ``COL`` or ``COL:KIND…`` with the kinds ``minmax`` (the default), ``values`` and ``bloom``.
        most_values: the maximum number of distinct values of a file in its list.
        false_positives: the false positive rate of Bloom filters.
        progress: receives the number of files that are read.

    Raises:
        PlanError: there is no such table, or it is not a Parquet table.
        ConfigError: a column cannot be indexed, the policy has no folder of stores, or there is no store to refresh.
        VerificationError: a file or the store is not authentic, or is another table's.
        KeyServiceError: a key is denied or not available.
        RunConflictError: another process writes the store.
    """
    configure(spark, policy)
    found = open_table_index(spark, table, policy)
    kinds = read_kinds(columns)
    if kinds:
        built = found.create(kinds, most_values=most_values, share=false_positives, progress=progress)
    else:
        built = found.refresh(progress)
    return found.describe(built)


def drop_index(spark: SparkSession, policy: Policy, uuid: str) -> tuple[str, tuple[str, ...]]:
    """Delete the store of a table, which may no longer exist; refuse if any table's location overlaps with its folder.

    Args:
        spark: a classic session, whose metastore is queried.
        policy: has the folder of stores.
        uuid: the UUID of the table.

    Returns:
        The store's folder, and the names of the files that were deleted.

    Raises:
        ConfigError: the policy has no folder of stores, there is no store, or there are other files.
        VerificationError: a table is at, in or above the folder; nothing was deleted.
        RunConflictError: another process is writing the store.
    """
    store = find_store(policy, uuid, open_state_directory(spark, policy.run_state))
    if store is None:
        raise ConfigError(_NO_PLACE)

    def note(generation: int) -> None:
        store.record.keep(generation + 1)

    deleted = drop_store(store.folder, uuid, lambda folder: _find_user(spark, policy, folder), note)
    return store.folder.uri, deleted


def _find_user(spark: SparkSession, policy: Policy, folder: str) -> str | None:
    """Return which table uses a folder, by the policy or the metastore; schemes of URIs are ignored."""
    here = split_path(folder)[2]
    known = ((rule.name, rule.location, "by the policy") for rule in policy.tables if rule.location)
    by_metastore = ((name, place, "by the metastore") for name, place, _ in locations_of_tables(spark))
    for name, place, source in (*known, *by_metastore):
        there = split_path(place)[2]
        if place and (is_within(there, here) or is_within(here, there)):
            return f"table {name} is at {place} {source}"
    return None
