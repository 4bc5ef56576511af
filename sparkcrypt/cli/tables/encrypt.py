"""`sparkcrypt encrypt`, and the job `jobs/encrypt_table.py`: encrypts the files of a table or folder by its tags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.options import (
    RewriteOptions,
    avro_option,
    option,
    options_from,
    require_either,
    select_options,
    table_option,
    use,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.rewrite.saved_plan import SavedPlan


@dataclass(frozen=True, kw_only=True)
class EncryptOptions(RewriteOptions):
    """The options of `sparkcrypt encrypt`."""

    table: str | None = use(table_option)
    avro_schema: str | None = use(avro_option)
    home: bool = option(
        "Move files that runs have put elsewhere back to the table's folder, for jobs that use the folder by path."
    )
    dry_run: bool = option("Show the plan and what would be done, and change nothing.")
    plan_file: str | None = option(
        "Apply the plan that `sparkcrypt plan --out` wrote there, and nothing else: a path or a URI.",
        "--plan",
        metavar="FILE",
    )


_OF_THE_PLAN = ("table", "path", "where", "avro_schema")
_BESIDE_NO_PLAN = (*_OF_THE_PLAN, "purge", "home")
"""Options that a saved plan has of its own, or that it was not made for."""


@click.command(cls=Command)
@options_from(EncryptOptions)
def encrypt(options: EncryptOptions) -> None:
    """Encrypt what a table or folder holds, by its tags; files that match the plan already are left alone.

    A failure at any step leaves the table as it was, and a run that was killed is continued by the same command.
    The report goes to stdout, and to --report; the plan and the progress to stderr.

    With --plan it ends with 75, and begins no unit, when tags, policy, partitions or files have changed since the plan
    was made; the same command continues a run of the plan that was killed.

    Examples:
      sparkcrypt encrypt --table sales.customers --policy policy.yaml --dry-run
      spark-submit jobs/encrypt_table.py --table sales.customers --policy policy.yaml --report report.json
      sparkcrypt encrypt --plan customers.plan.json --policy policy.yaml
      sparkcrypt encrypt --path /data/customers --output /data/customers_encrypted --policy policy.yaml
    """
    if options.plan_file is None:
        require_either(options.table, options.path)
    elif any(getattr(options, name) for name in _BESIDE_NO_PLAN):
        raise click.UsageError("--plan names the table or folder, and what is to be done; leave out what does so too")
    check_writable(options.report)
    with (
        Workplace("sparkcrypt encrypt", options.launch) as workplace,
        failed_report(workplace, options.report, options.table or options.path, engine=options.engine) as failure,
    ):
        saved: SavedPlan | None = None
        if options.plan_file is not None:
            saved = workplace.saved_plan(options.plan_file)
            options = replace(options, **{name: getattr(saved, name) for name in _OF_THE_PLAN})
            failure["table"] = saved.name
        table, path = options.table, options.path
        policy = workplace.policy(options.policy)
        avro = workplace.avro(options.avro_schema) if options.avro_schema else None
        spark = workplace.spark
        from sparkcrypt.runs.old_folders.former_homes import describe_move
        from sparkcrypt.runs.passes.run import encrypt_table
        from sparkcrypt.runs.rewrite.options import RunOptions
        from sparkcrypt.spark.tables.catalog import Catalog

        def show_plan(plan: EncryptionPlan) -> None:
            say(plan.table_text())
            moves = table is not None and not options.dry_run and not options.home
            move = describe_move(Catalog(spark).table(table or "")) if moves else None
            if move is not None:
                say(f"\nwarning: {move}")

        done = encrypt_table(
            spark,
            table,
            policy,
            path=path,
            avro=avro,
            options=select_options(
                RunOptions,
                options,
                plan=saved,
                progress=progress_on_stderr(),
                on_plan=show_plan,
                on_failure=lambda made: failure.update(made.to_dict()),
            ),
        )
        workplace.write_report(options.report, done.to_dict())
    show(done.to_dict(), done.to_text(), as_json=options.as_json)
