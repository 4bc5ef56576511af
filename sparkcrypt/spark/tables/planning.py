"""Builds the encryption plans of tables and datasets from their schema and tags and the policy."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from sparkcrypt.decide.values_in_clear import bucketing_text, find_buckets
from sparkcrypt.keys.sealed_history import SealedHistories
from sparkcrypt.names import REQUIRE_ENCRYPTION
from sparkcrypt.plan import EncryptionPlan, build_plan, compare_tags
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Schema, schema_from_spark
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tables.tagging import tags_of_table, unwrap_by
from sparkcrypt.spark.tables.tags_without_effect import find_unread_properties
from sparkcrypt.tags.model import history_of_properties
from sparkcrypt.tags.unite import unite_tags


def plan_table(spark: SparkSession, name: str, policy: Policy, *, avro: Schema | None = None) -> EncryptionPlan:
    """Return the plan of a table: every leaf column with its key and the reason.

    Args:
        spark: a classic session.
        name: ``table`` or ``database.table``.
        policy: the policy, which defines the tags.
        avro: an Avro schema whose tags are united with the table's own.

    Raises:
        PlanError: there is no such table, or no plan for its tags; the message names every problem of the schema.
    """
    return plan_of(spark, Catalog(spark).table(name), policy, avro=avro)


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
