"""`sparkcrypt plan`: shows the key of each column with the reason, and how existing files differ from the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.options import (
    PARALLELISM,
    CommandOptions,
    FilterOptions,
    accept_option,
    avro_option,
    databases_option,
    option,
    options_from,
    path_option,
    require_either,
    select_options,
    table_option,
    use,
    where_option,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.errors import PlanError
from sparkcrypt.paths import local_path
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Schema, schema_from_spark
from sparkcrypt.tags.model import unite_tags

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.plan import TargetPlan


@dataclass(frozen=True, kw_only=True)
class PlanOptions(FilterOptions, CommandOptions):
    """The options of `sparkcrypt plan`."""

    table: str | None = use(table_option)
    databases: tuple[str, ...] = use(databases_option)
    path: str | None = use(path_option)
    avro_schema: str | None = use(avro_option)
    where: str | None = use(where_option)
    schema_file: str | None = option(
        "A Spark schema as JSON instead of a table; needs no Spark.", "--schema", metavar="FILE"
    )
    partition_columns: tuple[str, ...] = option(
        "A partition column, with --schema or --avro-schema alone; may be repeated.",
        "--partition-column",
        metavar="NAME",
    )
    accept_path_readers: bool = use(accept_option)
    files: bool = option("Name each file that differs, and how.")
    out: str | None = option(
        "Also save the plan there, for `sparkcrypt encrypt --plan`: a path or a URI.", metavar="FILE"
    )


@click.command(cls=Command)
@options_from(PlanOptions)
@click.pass_context
def plan(context: click.Context, options: PlanOptions) -> None:
    """Show the plan of a table or folder, the drift of its files from it, and what a run would do.

    Exits with 0 when every file matches, with 2 on drift, with 69 when the key service lacks a key that a run would
    need, which is named with the next step, and with 74 when a table could not be planned, a run would
    refuse it, the folder of a unit is missing or cannot be listed, or files came to a folder that it has left.

    With --database, --select, --exclude, or a pattern as --table, it shows the drift of many tables, as `sparkcrypt
    backfill --dry-run` does; with none of them, and no --table, --path or schema, that of all databases.

    --out saves the plan for `sparkcrypt encrypt --plan`, which applies it and nothing else.  The file has no key and no
    value of a row, but the predicate of --where as it was typed.

    With --schema, or --avro-schema alone, it plans without Spark and without files; --table then only names the table
    whose rules in the policy count.

    Examples:
      sparkcrypt plan --table sales.customers --policy policy.yaml
      sparkcrypt plan --table sales.customers --policy policy.yaml --out customers.plan.json
      sparkcrypt plan --database sales --policy policy.yaml --json
      sparkcrypt plan --path s3a://lake/customers --policy policy.yaml --json
      sparkcrypt plan --avro-schema customer.avsc --policy policy.yaml
    """
    table, path = options.table, options.path
    named = table or path or options.schema_file or options.avro_schema
    filtered = options.select or options.exclude
    if options.databases or filtered or named is None or (table is not None and any(sign in table for sign in "*?[")):
        if path or options.schema_file or options.avro_schema or options.partition_columns:
            raise click.UsageError(
                "--database, --select, --exclude and patterns go with --policy, --where and --accept-path-readers alone"
            )
        if options.out or options.files:
            raise click.UsageError("--out and --files go with one table or folder; name it by --table or --path")
        _plan_of_many(context, options)
        return
    files = options.schema_file is None and (table is not None or path is not None)
    if files:
        require_either(table, path)
    if not files and (options.out or options.files):
        raise click.UsageError("--out and --files go with the files of a --table or --path, and --schema has none")
    if files and options.partition_columns:
        raise click.UsageError("--partition-column goes with --schema or --avro-schema alone; a table knows its own")
    check_writable(options.out, "--out")
    with Workplace("sparkcrypt plan", options.launch, short=True) as workplace:
        policy = workplace.policy(options.policy)
        avro = workplace.avro(options.avro_schema) if options.avro_schema else None
        if not files:
            target_plan = _plan_of_schema(policy, avro, options)
            show(target_plan.to_dict(), target_plan.table_text(), as_json=options.as_json)
            return
        found = _plan_of_one(workplace, policy, avro, options)
        if options.out is not None:
            workplace.write(options.out, replace(found.saved, avro_schema=options.avro_schema).to_text())
    show(found.to_dict(), found.to_text(files=options.files), as_json=options.as_json)
    context.exit(found.exit_code)


def _plan_of_many(context: click.Context, options: PlanOptions) -> None:
    with Workplace("sparkcrypt plan", options.launch, short=True) as workplace:
        policy, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.passes.passes import PassOptions, backfill
        from sparkcrypt.runs.rewrite.options import RunOptions

        run = RunOptions(keep_going=True, dry_run=True, where=options.where, parallelism=PARALLELISM)
        done = backfill(
            spark,
            policy,
            tables=[options.table] if options.table else [],
            databases=options.databases,
            options=select_options(PassOptions, options, run=run),
        )
    show(done.to_dict(), done.to_text(), as_json=options.as_json)
    context.exit(done.exit_code)


def _plan_of_one(workplace: Workplace, policy: Policy, avro: Schema | None, options: PlanOptions) -> TargetPlan:
    spark = workplace.spark
    from sparkcrypt.runs.passes.plan import plan_target
    from sparkcrypt.runs.table.target import Target, catalog_target, path_target
    from sparkcrypt.spark.setup.session import configure
    from sparkcrypt.spark.tables.catalog import Catalog

    if options.table is not None:
        target: Target = catalog_target(spark, Catalog(spark).table(options.table), policy, avro)
    else:
        configure(spark, policy)  # the schema of a bare folder is in its files, which may be encrypted
        target = path_target(spark, options.path or "", policy, avro)
    return plan_target(
        spark,
        target,
        policy,
        where=options.where,
        parallelism=PARALLELISM,
        accept_path_readers=options.accept_path_readers,
    )


def _plan_of_schema(policy: Policy, avro: Schema | None, options: PlanOptions) -> EncryptionPlan:
    table, schema_file, partition_columns = options.table, options.schema_file, options.partition_columns
    overlay = policy.table(table).tags if table else ()
    if schema_file is not None:
        text = _read(schema_file)
        schema = schema_from_spark(text, leave_out=partition_columns)
        tagged = unite_tags(schemas=[schema_from_spark(text)], avro=[avro], overlay=overlay)
    else:
        left_out = {name.lower() for name in partition_columns}
        schema = Schema(tuple(node for node in (avro.fields if avro else ()) if node.name.lower() not in left_out))
        tagged = unite_tags(avro=[avro], overlay=overlay)
    return build_plan(schema, tagged, policy, table=table, partition_columns=partition_columns)


def _read(file: str) -> str:
    try:
        return Path(local_path(file)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PlanError(
            f"--schema {file}: cannot be read ({reason}); name a file that holds what df.schema.json() returns"
        ) from error
