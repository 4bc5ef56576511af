"""`sparkcrypt encrypt`, and the job `jobs/encrypt_table.py`: encrypts the files of a table or folder by its tags."""

from __future__ import annotations

import json

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.options import (
    Launch,
    adopt_option,
    allow_decrypt_option,
    avro_option,
    engine_option,
    exclusive_option,
    home_option,
    json_option,
    move_old_option,
    output_option,
    path_option,
    policy_option,
    purge_option,
    report_option,
    require_either,
    resume_option,
    spark_options,
    table_option,
    where_option,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.plan import EncryptionPlan


@click.command(cls=Command)
@table_option
@path_option
@output_option
@exclusive_option
@policy_option
@avro_option
@engine_option("native rewrites files page by page; spark reads and writes their rows anew.")
@where_option
@adopt_option
@allow_decrypt_option
@purge_option
@home_option
@move_old_option(
    "Move the old files out of the table's folder at once; readers in flight fail, and nothing brings them back."
)
@resume_option("Continue an unfinished run of this table.")
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
    adopt: bool,
    allow_decrypt: bool,
    purge: bool,
    home: bool,
    move_old: bool,
    resume: str,
    dry_run: bool,
    report: str | None,
    as_json: bool,
    launch: Launch,
) -> None:
    """Encrypt what a table or folder holds, by its tags; files that match the plan already are left alone.

    A failure at any step leaves the table as it was, and a run that was killed is continued by the same command.
    The report goes to stdout, and to --report; the plan and the progress to stderr.

    Examples:
      sparkcrypt encrypt --table sales.customers --policy policy.yaml --dry-run
      spark-submit jobs/encrypt_table.py --table sales.customers --policy policy.yaml --report report.json
      sparkcrypt encrypt --path /data/customers --output /data/customers_encrypted --policy policy.yaml
    """
    require_either(table, path)
    check_writable(report)
    with (
        Workplace("sparkcrypt encrypt", launch) as workplace,
        failed_report(workplace, report, table or path, engine=engine) as failure,
    ):
        loaded, avro = workplace.policy(policy), workplace.avro(avro_schema) if avro_schema else None
        spark = workplace.spark
        from sparkcrypt.runs.old_folders.former_homes import describe_move
        from sparkcrypt.runs.passes.encrypt import encrypt_table
        from sparkcrypt.runs.rewrite.options import RunOptions
        from sparkcrypt.spark.tables.catalog import Catalog

        def show_plan(plan: EncryptionPlan) -> None:
            say(plan.table_text())
            moves = table is not None and not dry_run and not home
            move = describe_move(Catalog(spark).table(table or "")) if moves else None
            if move is not None:
                say(f"\nwarning: {move}")

        options = RunOptions(
            engine=engine,  # type: ignore[arg-type]  # encrypt_table refuses unknown engines
            where=where,
            output=output,
            exclusive=exclusive,
            dry_run=dry_run,
            adopt=adopt,
            allow_decrypt=allow_decrypt,
            purge=purge,
            home=home,
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
            on_plan=show_plan,
            on_failure=lambda made: failure.update(made.to_dict()),
        )
        if report is not None:
            workplace.write(report, json.dumps(done.to_dict(), indent=2, ensure_ascii=False) + "\n")
    show(done.to_dict(), done.to_text(), as_json=as_json)
