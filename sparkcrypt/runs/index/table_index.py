"""The index of a table of the catalog: folders, partitions and types are the metastore's, keys the plan's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkcrypt.decide.identity import check_claims
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.paths import is_within
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.index.open_index import find_store, report_reading
from sparkcrypt.runs.table.in_use import locations_of_tables
from sparkcrypt.runs.table.open_table import Progress
from sparkcrypt.runs.table.target import refuse_kinds
from sparkcrypt.skipping.format.store import Store
from sparkcrypt.skipping.indexes.build import IndexResult, Plan, Wanted, read_kinds
from sparkcrypt.skipping.indexes.entries import FILTER_SHARE, LIST_VALUES
from sparkcrypt.skipping.indexes.files import TYPES, Column, DataFolder, list_folder, partition_columns
from sparkcrypt.skipping.indexes.indexed import Indexed, Source, find_table_at, list_locations
from sparkcrypt.skipping.trusted.folder import NO_LOCATION
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog, Table
from sparkcrypt.spark.tables.identity import refuse_shared_identity
from sparkcrypt.spark.tables.planning import plan_of
from sparkcrypt.spark.tasks.index_rows import rows_in_tasks
from sparkcrypt.spark.tasks.run import hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHAR, _COLLATIONS = "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"


def planned_keys(plan: EncryptionPlan, store: Store, current: Mapping[str, str]) -> dict[str, str]:
    """Return column -> the master key for its indexes in an existing store: the key that a plan gives the column.

    If that key is a template, which gives each partition another key, the index stays under its current key.

    Args:
        plan: the plan of the table's columns.
        store: the store.
        current: column -> the current key of its indexes.
    """
    planned = {column.leaf.logical[0]: column for column in plan.columns if len(column.leaf.logical) == 1}
    keys: dict[str, str] = {}
    for column in {entries.index.columns[0] for entries in store.indexes}:
        found = planned.get(column)
        key = None if found is None else found.key
        if key is not None and not key.columns:
            keys[column] = key.text
        elif (found is None or key is not None) and column in current:
            keys[column] = current[column]
    return keys


def open_table_index(spark: SparkSession, name: str, policy: Policy, progress: Progress | None = None) -> Indexed:
    """Return the index of a table, without reading it or a file.

    Args:
        spark: a classic session.
        name: ``db.table``.
        policy: has the folder of stores, and names the keys.
        progress: receives the number of files that are read.

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
            NO_LOCATION
            if policy.index_location is None
            else f"{table.full_name} has no UUID, by which its index would be found; tag a column of it, or run "
            "`encrypt_table`"
        )
    for folder in (table.location, *(data.partitions or {}).values()):
        if is_within(store.folder.uri, folder) or is_within(folder, store.folder.uri):
            raise ConfigError(
                f"{store.folder.uri}: is inside or above {folder}, where {table.full_name} has files; give indexes "
                "another place in the policy"
            )
    source = Source(
        table.full_name,
        data,
        report_reading(rows_in_tasks(spark, policy.key_service), table.full_name, progress),
        lambda: table.uuid,
        partial(_plan_store, table, plan, data),
        partial(planned_keys, plan),
        partial(_find_user, spark, policy),
    )
    return Indexed(source, lambda _: store)


def index_table(
    spark: SparkSession,
    table: str,
    policy: Policy,
    *,
    columns: Iterable[str] = (),
    most_values: int = LIST_VALUES,
    false_positives: float = FILTER_SHARE,
) -> IndexResult:
    """Create a table's store for data skipping; without columns, refresh the existing one.

    Args:
        spark: a classic session; it is configured with the policy.
        table: ``db.table``.
        policy: has the folder of stores (``index.location``), and names the keys.
        columns: each ``COL`` or ``COL:KIND…`` with the kinds ``minmax`` (the default), ``values`` and ``bloom``.
        most_values: the maximum number of distinct values of a file in its list.
        false_positives: the false positive rate of Bloom filters.

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
    if not kinds:
        return found.refresh()
    return found.create(Wanted(kinds, most_values=most_values, false_positives=false_positives))


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
        raise ConfigError(NO_LOCATION)
    return store.folder.uri, store.drop(partial(_find_user, spark, policy))


def _find_user(spark: SparkSession, policy: Policy, folder: str) -> str | None:
    """Return which table uses a folder, by the policy or the metastore, or None."""
    by_metastore = ((name, place, "by the metastore") for name, place, _ in locations_of_tables(spark))
    return find_table_at((*list_locations(policy), *by_metastore), folder)


def find_files(spark: SparkSession, table: Table, policy: Policy) -> DataFolder:
    """Return the files of a table, each below the folder that the metastore names for its partition.

    Raises:
        PlanError: it is not a Parquet table, or its partitions cannot be listed.
    """
    refuse_kinds(table, policy)
    if table.format != "parquet":
        raise PlanError(
            f"{table.full_name} is a table in {str(table.format).upper()}; data-skipping indexes are of Parquet "
            "tables, so name one of those"
        )
    folders = {"": table.location}
    if table.partition_columns:
        folders = {partition.folder: partition.location for partition in Catalog(spark).partitions(table)}

    def check_file(path: str, summary: FileSummary) -> None:
        if summary.footer != "plaintext":
            check_claims(policy, path, summary.aad_prefix, summary.algorithm, table_uuid=table.uuid)

    return DataFolder(
        table.location,
        open_data_keys(policy.key_service),
        check_file,
        hadoop_settings(spark),
        folders,
        len(table.partition_columns),
    )


def _plan_store(table: Table, plan: EncryptionPlan, data: DataFolder, wanted: Wanted) -> Plan:
    """Return the plan of a store, with types from the catalog and keys from the table's plan.

    Raises:
        ConfigError: a column cannot be indexed; the message names it and the reason.
    """
    columns = choose_columns(table, plan, wanted.kinds)
    listing = list_folder(data)
    names = [file.name for file in listing.settled]
    partitions = partition_columns(names, partition_types(table) if names else {}, {})
    return Plan(listing, table.uuid, columns, wanted.make_indexes(columns), partitions, {})


def choose_columns(table: Table, plan: EncryptionPlan, wanted: Iterable[str]) -> dict[str, Column]:
    """Return the columns to index, with their types from the catalog, and their keys from the plan.

    Raises:
        ConfigError: a column does not exist, is a partition column, or cannot be indexed due to its type or tag; the
            message names it and the reason.
    """
    fields = {field["name"].lower(): field for field in json.loads(table.schema_json)["fields"]}
    planned = {column.leaf.logical[0].lower(): column for column in plan.columns}
    found: dict[str, Column] = {}
    for name in wanted:
        field = fields.get(name.lower())
        if field is None:
            raise ConfigError(f"column {name!r}: {table.full_name} has none of that name; allowed: {', '.join(fields)}")
        if name.lower() in {column.lower() for column in table.partition_columns}:
            raise ConfigError(f"column {name!r}: is a partition column, which every index has; leave it out")
        kind = _column_type(name, field)
        found[str(field["name"])] = Column(kind, _column_key(name, planned[name.lower()]))
    return found


def partition_types(table: Table) -> dict[str, str]:
    """Return the types of a table's partition columns whose values can be compared and are not strings."""
    columns = {name.lower() for name in table.partition_columns}
    fields = json.loads(table.schema_json)["fields"]
    return {
        str(field["name"]): str(field["type"])
        for field in fields
        if field["name"].lower() in columns and field["type"] in TYPES and field["type"] != "string"
    }


def _column_type(name: str, field: Mapping[str, Any]) -> str:
    kind, metadata = field["type"], field.get("metadata") or {}
    if not isinstance(kind, str):
        raise ConfigError(f"column {name!r}: cannot be indexed, since it is nested or repeated; leave it out")
    if str(metadata.get(_CHAR, "")).startswith("char") or kind.startswith("char"):
        raise ConfigError(f"column {name!r}: cannot be indexed, since it is CHAR, which Spark pads; leave it out")
    if _COLLATIONS in metadata or " collate " in kind:
        raise ConfigError(f"column {name!r}: cannot be indexed, since it has a collation; leave it out")
    return "string" if kind.startswith("varchar") else kind


def _column_key(name: str, planned: ColumnPlan) -> str | None:
    """Return the master key of a column's indexes; None for the footer's key."""
    if planned.key is None:
        return None
    if planned.key.columns:
        raise ConfigError(
            f"column {name!r}: cannot be indexed, since its tag {planned.tag!r} gives it a key for each "
            f"{', '.join(planned.key.columns)} ({planned.key.text}), and an index is under one key; leave it out"
        )
    return planned.key.text
