"""The files of a table of the catalog, from which its store is made: folders, partitions and types by the metastore."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkcrypt.decide.claims import check_claims
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.footers import own_keys
from sparkcrypt.runs.table.kinds import refuse_kinds
from sparkcrypt.skipping.indexes.files import Column, DataFolder
from sparkcrypt.skipping.indexes.partitions import TYPES
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tasks.run import hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHAR, _COLLATIONS = "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"


def find_files(spark: SparkSession, table: Table, policy: Policy) -> DataFolder:
    """Return the files of a table, each below the folder that the metastore names for its partition.

    Raises:
        PlanError: it is not a Parquet table, or its partitions cannot be listed.
    """
    refuse_kinds(table, policy)
    if table.format != "parquet":
        raise PlanError(
            f"{table.full_name} is a table in {str(table.format).upper()}; stores for data skipping are of Parquet "
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
        own_keys(policy.key_service),
        check_file,
        hadoop_settings(spark),
        folders,
        len(table.partition_columns),
    )


def choose_columns(table: Table, plan: EncryptionPlan, wanted: Sequence[str]) -> dict[str, Column]:
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
            raise ConfigError(f"column {name!r}: is a partition column, which every store has; leave it out")
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
