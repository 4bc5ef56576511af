"""`sparkcrypt backfill`, and the job `jobs/backfill.py`: rewrites existing files after changes of tags or policy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from sparkcrypt.cli.frame.command import Group
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.options import (
    Launch,
    accept_option,
    adopt_option,
    allow_decrypt_option,
    budget_options,
    databases_option,
    describe_policy,
    engine_option,
    exclusive_option,
    json_option,
    move_old_option,
    output_option,
    path_option,
    purge_option,
    report_option,
    resume_option,
    spark_options,
    where_option,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.pass_text import pass_text
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.cli.runs.expire import expire
from sparkcrypt.cli.runs.orphans import orphans
from sparkcrypt.cli.runs.past_runs import list_, rollback, show_run, status
from sparkcrypt.cli.runs.problems import resolve

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.passes import PassOptions
    from sparkcrypt.runs.passes.report import PassReport

_APP = "sparkcrypt backfill"


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--table", "tables", multiple=True, metavar="PATTERN", help="A table, or a pattern such as 'sales.cust*'."
)
@databases_option
@path_option
@output_option
@exclusive_option
@click.option("--policy", metavar="FILE", help="The policy file: a path, or a URI such as hdfs://nn/policy.yaml.")
@where_option
@click.option("--changed", is_flag=True, help="Only tables whose tags, policy or files changed since the last pass.")
@click.option("--dry-run", is_flag=True, help="Show the drift and what would be done; exits with 2 on drift.")
@budget_options
@engine_option("See `sparkcrypt encrypt`.")
@accept_option
@adopt_option
@allow_decrypt_option
@move_old_option("Move old files out of the table's folder at once; see `sparkcrypt encrypt`.")
@click.option(
    "--rewrap",
    is_flag=True,
    help="Where only master keys differ, wrap data keys anew and leave the data: faster, and no revocation.",
)
@purge_option
@resume_option("Continue a table's unfinished run.")
@report_option
@click.option("--html", metavar="FILE", help="Also write the report there as a page with pictures: a path or a URI.")
@json_option
@spark_options
@click.pass_context
def backfill(context: click.Context, /, **option_values: Any) -> None:
    """Bring tables to what their tags and the policy say, and look after the runs that did it.

    Files that match already are left alone.  A unit that cannot be done stays as it was and is reported, and the rest
    goes on: then this exits with 74; with --dry-run, when a table cannot be planned or would be refused.  A pass that
    was killed, or whose budget (--max-bytes, --max-duration) was spent, is continued by the same command.

    Examples:
      sparkcrypt backfill --database sales --policy policy.yaml --dry-run
      sparkcrypt backfill --database sales --changed --policy policy.yaml --max-duration 4h --report report.json
      spark-submit jobs/backfill.py --table 'sales.cust*' --where "day >= '2026-01-01'" --policy policy.yaml
      sparkcrypt backfill expire --table sales.customers --policy policy.yaml
    """
    if context.invoked_subcommand is None:
        _backfill(context, **option_values)
    elif any(option_values[name] for name in ("tables", "databases", "path", "policy", "report", "html")):
        raise click.UsageError(f"options go after {context.invoked_subcommand}", context)


for _command in (list_, show_run, status, resolve, rollback, expire, orphans):
    backfill.add_command(_command)


def _backfill(
    context: click.Context,
    *,
    tables: tuple[str, ...],
    databases: tuple[str, ...],
    path: str | None,
    policy: str | None,
    report: str | None,
    html: str | None,
    as_json: bool,
    launch: Launch,
    **option_values: Any,
) -> None:
    if policy is None:
        raise click.UsageError(f"Missing option '--policy'. {describe_policy()}", context)
    if (path is None) == (not tables and not databases):
        raise click.UsageError("give --table or --database, or else --path", context)
    check_writable(report)
    check_writable(html, "--html")
    name = path or ", ".join((*tables, *(f"{database}.*" for database in databases)))
    with (
        Workplace(_APP, launch) as workplace,
        failed_report(
            workplace, report, name, page=(html, _page) if html else None, kind="sparkcrypt backfill", version=1
        ) as failure,
    ):
        loaded = workplace.policy(policy)
        spark = workplace.spark
        from sparkcrypt.runs.passes.passes import backfill as made

        options = _options(**option_values)
        done = made(
            spark,
            loaded,
            tables=tables,
            databases=databases,
            path=path,
            options=options,
            progress=progress_on_stderr(),
            on_failure=lambda done_report: failure.update(done_report.to_dict()),
        )
        _write(workplace, done, report, html)
    show(done.to_dict(), pass_text(done), as_json=as_json)
    context.exit(done.exit_code)


def _options(
    *, changed: bool, accept_path_readers: bool, max_bytes: int | None, max_duration: float | None, **run: Any
) -> PassOptions:
    from sparkcrypt.runs.passes.passes import PassOptions
    from sparkcrypt.runs.rewrite.options import RunOptions

    return PassOptions(
        run=RunOptions(keep_going=True, **run),
        changed=changed,
        accept_path_readers=accept_path_readers,
        max_bytes=max_bytes,
        max_seconds=max_duration,
    )


def _write(workplace: Workplace, done: PassReport, report: str | None, html: str | None) -> None:
    document = done.to_dict()
    if report is not None:
        workplace.write(report, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if html is not None:
        workplace.write(html, _page(document))


def _page(document: dict[str, Any]) -> str:
    from sparkcrypt.runs.passes.html.page import report_html

    return report_html(document)
