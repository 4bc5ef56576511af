"""Encryption of one table or folder by its tags: `sparkcrypt.encrypt_table`, which `sparkcrypt encrypt` calls too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.job import open_job
from sparkcrypt.runs.passes.run import run_table
from sparkcrypt.runs.rewrite.options import Engine, RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.open_table import Progress, open_target
from sparkcrypt.runs.table.target import Target, catalog_target, path_target
from sparkcrypt.schema import Schema
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def encrypt_table(
    spark: SparkSession,
    table: str | None,
    policy: Policy,
    *,
    path: str | None = None,
    avro: Schema | None = None,
    options: RunOptions | None = None,
    progress: Progress | None = None,
    on_plan: Callable[[EncryptionPlan], None] | None = None,
    on_failure: Callable[[Report], None] = lambda _: None,
    **named: Any,
) -> Report:
    """Encrypt the files of a table or folder by its tags; units whose files all match the plan are left unchanged.

    Args:
        spark: a classic session; it will be configured with the policy.
        table: ``db.table``, or None with ``path``.
        policy: what the tags mean.
        path: a bare folder of Parquet or ORC files.
        avro: an Avro schema whose tags are added to the target's tags.
        options: the run's options; single options may be given by name instead (``engine="native"``).
        progress: receives progress updates.
        on_plan: called with the plan before any data are read or written; an error that it raises ends the run.
        on_failure: called with the partial report before an error that ends the run is re-raised.
        **named: single options by their names in ``RunOptions``.

    Returns:
        The report.

    Raises:
        PlanError, ConfigError: the target or the options are refused.
        VerificationError: files could not be read or proven; the unit is unchanged.
        RunConflictError: another run holds the table.
    """
    unknown = sorted(named.keys() - {field.name for field in fields(RunOptions)})
    if unknown:
        allowed = ", ".join(field.name for field in fields(RunOptions))
        raise ConfigError(f"option {unknown[0]!r} is not known; allowed: {allowed}")
    options = replace(options or RunOptions(), **named)
    options.check()
    if (table is None) == (path is None):
        raise ConfigError("give either a table or a path")
    configure(spark, policy)
    target = find_target(spark, table, path, policy, avro, options.engine)
    if on_plan is not None:
        on_plan(target.plan)
    target = target if options.dry_run else target.with_identity()
    return run_table(open_job(open_target(spark, target, policy, progress), options), on_failure)


def find_target(
    spark: SparkSession, table: str | None, path: str | None, policy: Policy, avro: Schema | None, engine: Engine
) -> Target:
    """Return a table or a bare folder as a target.

    Raises:
        PlanError: the table or folder does not exist, or its files cannot be swapped.
        ConfigError: the engine cannot rewrite it.
    """
    target: Target
    if path is not None:
        target = path_target(spark, path, policy, avro)
    else:
        target = catalog_target(spark, Catalog(spark).table(table or ""), policy, avro)
    if target.format == "orc" and engine == "spark":
        raise ConfigError(
            f"{target.name}: Spark's engine rewrites Parquet alone; use --engine native, which rewrites ORC too"
        )
    if target.table is not None and target.table.bucket_columns and engine == "spark":
        raise ConfigError(
            f"{target.name} is bucketed: Spark's engine would give its files other names, by which buckets are told; "
            "use --engine native, which keeps them"
        )
    return target
