"""Builds the encryption plans of tables and datasets from their schema, tags and the policy, and names tags in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyspark.sql import SparkSession

from sparkcrypt.decide.values_in_clear import bucketing_text, find_buckets
from sparkcrypt.errors import PlanError
from sparkcrypt.keys.sealed_history import SealedHistories
from sparkcrypt.names import REQUIRE_ENCRYPTION, TAGS_PREFIX
from sparkcrypt.plan import EncryptionPlan, build_plan, compare_tags
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import ColumnIndex, Schema, join_dotted, schema_from_spark
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tables.tagging import refuse_formats_without_keys, tags_of_table, unwrap_by
from sparkcrypt.tags.model import history_of_properties, unite_tags

_OF_THEIR_OWN = ("iceberg", "delta", "hudi")
"""Formats that write Parquet files, which are encrypted as they are written."""


def find_unread_properties(table: Table) -> Iterator[str]:
    """Yield a line for each property that looks like a tag and that neither plans nor writers read."""
    words = ("SERDEPROPERTIES", "TBLPROPERTIES") if table.is_hive else ("TBLPROPERTIES", "SERDEPROPERTIES or OPTIONS")
    for name, value in sorted(table.unused.items()):
        if name.lower().startswith(TAGS_PREFIX) and value.strip() and table.options.get(name) != value:
            where = f"stands in {words[0]}, and of this table {words[1]} are read"
            yield f"{name} = {value!r} {where}{_advise(table, name, value)}"
    for name, value in sorted(table.options.items()):
        if name.lower().startswith(TAGS_PREFIX) and not name.startswith(TAGS_PREFIX) and value.strip():
            yield f"{name} = {value!r} is not read: a tag's name begins with {TAGS_PREFIX}{_advise(table, name, value)}"


def find_tags_without_effect(spark: SparkSession, table: Table, policy: Policy | None) -> Iterator[str]:
    """Yield a line for each tag of a table that encrypts nothing: unread, of no column, or in a format without keys.

    Args:
        spark: a classic session.
        table: the table from the catalog.
        policy: defines which formats runs encrypt; None: only Parquet.
    """
    yield from find_unread_properties(table)
    tagged = tags_of_table(spark, table)
    index = ColumnIndex(schema_from_spark(table.schema_json))
    for column in tagged:
        if not index.find(column.path):
            yield (
                f"column {join_dotted(column.path)} is tagged {','.join(column.tags)} by the {column.source}, and the "
                "table has no such column, so no plan can be made of it; correct the tag or remove it"
            )
    if tagged and table.kind != "VIEW" and table.provider not in _OF_THEIR_OWN:  # a view has those of what it reads
        try:
            refuse_formats_without_keys(table, policy)
        except PlanError as error:
            yield str(error)


def _advise(table: Table, name: str, value: str) -> str:
    return f"; set it with `sparkcrypt tags set {table.full_name} {name[len(TAGS_PREFIX) :]} {value.strip()}`"


def plan_table(spark: SparkSession, name: str, policy: PolicySource, *, avro: Schema | None = None) -> EncryptionPlan:
    """Return the plan of a table: every leaf column with its key and the reason.

    Args:
        spark: a classic session.
        name: ``table`` or ``database.table``.
        policy: the policy, which defines the tags, or the path of its file.
        avro: an Avro schema whose tags are united with the table's own.

    Raises:
        ConfigError: the policy cannot be read.
        PlanError: there is no such table, or no plan for its tags; the message names every problem of the schema.
    """
    return plan_of(spark, Catalog(spark).table(name), policy_of(policy), avro=avro)


def plan_of(spark: SparkSession, table: Table, policy: Policy, *, avro: Schema | None = None) -> EncryptionPlan:
    """Return the plan of a table from the catalog."""
    rule = policy.table(table.full_name)
    tagged = unite_tags(known=tags_of_table(spark, table), avro=[avro], overlay=rule.tags)
    schema = schema_from_spark(table.schema_json, leave_out=table.partition_columns)
    plan = build_plan(
        schema,
        tagged,
        policy,
        table=table.full_name,
        partition_columns=table.partition_columns,
        history=history_of_properties(table.options),
    ).require(table.options.get(REQUIRE_ENCRYPTION, "").lower() == "true")
    columns = plan.columns
    if plan.require_encryption:
        columns = SealedHistories(policy, table.uuid, unwrap_by(policy)).judge(columns)
    buckets = tuple(
        bucketing_text(table.full_name, name, tag) for name, tag in find_buckets(columns, table.bucket_columns)
    )
    return replace(
        plan,
        columns=columns,
        differences=compare_tags(schema, tagged, policy),
        without_effect=tuple(find_unread_properties(table)),
        in_clear=buckets,
    )


def plan_path(
    schema_json: str,
    policy: Policy,
    *,
    partition_columns: tuple[str, ...] = (),
    table: str | None = None,
    avro: Schema | None = None,
) -> EncryptionPlan:
    """Return the plan of a dataset without a table, by the tags of its Spark schema, an Avro schema and the policy."""
    rule = policy.table(table)
    schema = schema_from_spark(schema_json)
    return build_plan(
        schema_from_spark(schema_json, leave_out=partition_columns),
        unite_tags(schemas=[schema], avro=[avro], overlay=rule.tags),
        policy,
        table=table,
        partition_columns=partition_columns,
    )
