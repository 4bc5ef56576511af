"""`sparkcrypt encrypt`, and the job `jobs/encrypt_table.py`: encrypt what a table or directory holds, by its tags."""

from __future__ import annotations

import json

import click

from sparkcrypt.backfill.engines import ENGINES
from sparkcrypt.cli.command import Command
from sparkcrypt.cli.options import (
    Launch,
    avro_option,
    json_option,
    one_of,
    path_option,
    policy_option,
    report_option,
    spark_options,
    strict_option,
    table_option,
    where_option,
)
from sparkcrypt.cli.output import say, show
from sparkcrypt.cli.progress import progress_on_stderr
from sparkcrypt.cli.reporting import failed_report
from sparkcrypt.cli.session import Workplace, check_writable


@click.command(cls=Command)
@table_option
@path_option
@click.option("--output", metavar="DIR", help="With --path: write the encrypted copy there; the source stays.")
@click.option("--exclusive", is_flag=True, help="With --path: rename the directory while nobody reads or writes it.")
@policy_option
@avro_option
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="native",
    show_default=True,
    help="native rewrites files page by page; spark reads and writes their rows anew.",
)
@where_option
@strict_option
@click.option(
    "--adopt", is_flag=True, help="Rewrite files too that a table which requires encryption would not believe."
)
@click.option(
    "--move-old",
    is_flag=True,
    help="Move the old files out of the table's folder at once; readers in flight fail, and nothing brings them back.",
)
@click.option(
    "--resume",
    default="auto",
    show_default=True,
    metavar="auto|RUN|never",
    help="Continue an unfinished run of this table.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and what would be done, and change nothing.")
@report_option
@json_option
@spark_options
def encrypt(
    table: str | None,
    path: str | None,
    output: str | None,
    exclusive: bool,
    policy: str,
    avro_schema: str | None,
    engine: str,
    where: str | None,
    strict: bool,
    adopt: bool,
    move_old: bool,
    resume: str,
    dry_run: bool,
    report: str | None,
    as_json: bool,
    launch: Launch,
) -> None:
    """Encrypt what a table or directory holds, by its tags; files that match the plan already are left alone.

    A failure at any step leaves the table as it was, and a run that was killed is continued by the same command.
    The report goes to stdout, and to --report; the plan and the progress to stderr.

    Examples:
      sparkcrypt encrypt --table sales.customers --policy policy.yaml --dry-run
      spark-submit jobs/encrypt_table.py --table sales.customers --policy policy.yaml --report report.json
      sparkcrypt encrypt --path /data/customers --output /data/customers_encrypted --policy policy.yaml
    """
    one_of(table, path)
    check_writable(report)
    with (
        Workplace("sparkcrypt encrypt", launch) as workplace,
        failed_report(workplace, report, table or path, engine=engine) as known,
    ):
        loaded, avro = workplace.policy(policy), workplace.avro(avro_schema) if avro_schema else None
        spark = workplace.spark
        from sparkcrypt.backfill.encrypt import encrypt_table
        from sparkcrypt.backfill.options import RunOptions

        options = RunOptions(
            engine=engine,  # type: ignore[arg-type]  # encrypt_table refuses what it does not know, and says what it does
            where=where,
            strict=strict,
            output=output,
            exclusive=exclusive,
            dry_run=dry_run,
            adopt=adopt,
            move_old=move_old,
            resume=resume,
        )
        done = encrypt_table(
            spark,
            table,
            loaded,
            path=path,
            avro=avro,
            options=options,
            progress=progress_on_stderr(),
            on_plan=lambda plan: say(plan.table_text()),
            on_failure=lambda made: known.update(made.to_dict()),
        )
        if report is not None:
            workplace.write(report, json.dumps(done.to_dict(), indent=2, ensure_ascii=False) + "\n")
    show(done.to_dict(), done.to_text(), as_json=as_json)
