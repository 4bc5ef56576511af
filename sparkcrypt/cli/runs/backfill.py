"""`sparkcrypt backfill`, and the job `jobs/backfill.py`: rewrites existing files after changes of tags or policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sparkcrypt.cli.frame.command import Group
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.options import (
    PassCommandOptions,
    RewriteOptions,
    describe_policy,
    is_typed,
    option,
    optional_policy_option,
    options_from,
    select_options,
    use,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.cli.runs.past_runs import expire, list_, orphans, resolve, rollback, show_run, status
from sparkcrypt.paths import is_local, local_path

_APP = "sparkcrypt backfill"


@dataclass(frozen=True, kw_only=True)
class BackfillOptions(PassCommandOptions, RewriteOptions):
    """The options of `sparkcrypt backfill`; the policy is required only where no subcommand is called."""

    policy: str | None = use(optional_policy_option)  # type: ignore[assignment]  # `_backfill` refuses None
    changed: bool = option("Only tables whose tags, policy or files changed since the last pass.")
    dry_run: bool = option("Show the drift and what would be done; exits with 2 on drift.")
    rewrap: bool = option(
        "Where only master keys differ, rewrap data keys and leave the data: faster, but revokes nothing."
    )
    html: str | None = option("Also write the report there as a page with pictures: a path or a URI.", metavar="FILE")


_OF_THE_PASS = ("tables", "databases", "select", "exclude", "path", "policy", "report", "html")
"""Options that a subcommand has of its own, if at all."""


@click.group(cls=Group, invoke_without_command=True)
@options_from(BackfillOptions)
@click.pass_context
def backfill(context: click.Context, options: BackfillOptions) -> None:
    """Bring tables to what their tags and the policy say, and look after the runs that did it.

    Without --table, --database and --path, every table of all databases.  Files that match already are left alone.  A
    unit that cannot be done stays as it was and is reported, and the rest
    goes on: then this exits with 74; with --dry-run, when a table cannot be planned or would be refused.  A pass that
    was killed, or whose budget (--max-bytes, --max-duration) was spent, is continued by the same command.

    Examples:
      sparkcrypt backfill --database sales --policy policy.yaml --dry-run
      sparkcrypt backfill --database sales --changed --policy policy.yaml --max-duration 4h --report report.json
      spark-submit jobs/backfill.py --table 'sales.cust*' --where "day >= '2026-01-01'" --policy policy.yaml
      sparkcrypt backfill expire --table sales.customers --policy policy.yaml
    """
    if context.invoked_subcommand is None:
        _backfill(context, options)
    elif any(is_typed(context, name) for name in _OF_THE_PASS):
        raise click.UsageError(f"options go after {context.invoked_subcommand}", context)


for _command in (list_, show_run, status, resolve, rollback, expire, orphans):
    backfill.add_command(_command)


def _backfill(context: click.Context, options: BackfillOptions) -> None:
    tables, databases, path, report, html = (
        options.tables,
        options.databases,
        options.path,
        options.report,
        options.html,
    )
    if options.policy is None:
        raise click.UsageError(f"Missing option '--policy'. {describe_policy()}", context)
    if path is not None and (tables or databases or options.select or options.exclude):
        raise click.UsageError("give --table or --database, or else --path", context)
    check_writable(report)
    check_writable(html, "--html")
    name = path or ", ".join((*tables, *(f"{database}.*" for database in databases))) or "*.*"
    page = (html, _page) if html else None
    with (
        Workplace(_APP, options.launch) as workplace,
        failed_report(workplace, report, name, page=page, kind="sparkcrypt backfill", version=1) as failure,
    ):
        policy, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.passes.passes import PassOptions
        from sparkcrypt.runs.passes.passes import backfill as rewrite_tables
        from sparkcrypt.runs.rewrite.options import RunOptions

        run = select_options(RunOptions, options, keep_going=True, progress=progress_on_stderr())
        done = rewrite_tables(
            spark,
            policy,
            tables=tables,
            databases=databases,
            path=path,
            options=select_options(
                PassOptions,
                options,
                run=run,
                page=None if html is None else str(Path(local_path(html)).absolute()) if is_local(html) else html,
                on_failure=lambda done_report: failure.update(done_report.to_dict()),
            ),
        )
        document = done.to_dict()
        workplace.write_report(report, document)
        if html is not None:
            workplace.write(html, _page(document))
    show(document, done.to_text(), as_json=options.as_json)
    context.exit(done.exit_code)


def _page(document: dict[str, Any]) -> str:
    from sparkcrypt.runs.passes.html.page import report_html

    return report_html(document)
