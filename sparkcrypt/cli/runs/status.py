"""`sparkcrypt status` and `sparkcrypt lineage`: how all tables are, and where their columns came from."""

from __future__ import annotations

from dataclasses import dataclass

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    FilterOptions,
    TablesOptions,
    option,
    options_from,
    report_option,
    use,
)
from sparkcrypt.cli.frame.output import show

_APP = "sparkcrypt status"


@dataclass(frozen=True, kw_only=True)
class StatusOptions(CommandOptions):
    """The options of `sparkcrypt status`."""

    databases: tuple[str, ...] = option("Only the tables of this database.", "--database", metavar="NAME")
    fresh: bool = option("Scan the tables now, as `backfill --dry-run` does; it needs Spark, and reads footers.")
    html: str | None = option("Also write a page with pictures there: a path or a URI.", metavar="FILE")
    metrics: str | None = option(
        "Also write metrics there, as node exporter's textfile collector reads them: FILE.prom.", metavar="FILE"
    )
    report: str | None = use(report_option)


@click.command(cls=Command)
@options_from(StatusOptions)
@click.pass_context
def status(context: click.Context, options: StatusOptions) -> None:
    """Show the state of all tables: coverage by tag, drift, problems, plaintext awaiting expiry, overdue keys.

    It is what passes, runs and `expire` have recorded in the policy's state directory, each figure with its age; no
    table is read, and nothing is authenticated (`sparkcrypt backfill status` does that for one table).  --fresh scans
    the tables of the databases instead, or of all of them, and records nothing.  It ends with 74 while a problem is
    open or a table has lost tags; drift alone does not change the exit code.

    Examples:
      sparkcrypt status --policy policy.yaml
      sparkcrypt status --database sales --policy policy.yaml --html status.html
      sparkcrypt status --policy policy.yaml --metrics /var/lib/node_exporter/sparkcrypt.prom
    """
    check_writable(options.html, "--html")
    check_writable(options.metrics, "--metrics")
    check_writable(options.report)
    with (
        Workplace(_APP, options.launch, short=not options.fresh) as workplace,
        failed_report(workplace, options.report, None, kind="sparkcrypt status", version=1),
    ):
        policy = workplace.policy(options.policy)
        from sparkcrypt.runs.passes.estate import read_status, scan

        found = scan(workplace.spark, policy, options.databases) if options.fresh else None
        done = read_status(workplace.state_directory(policy.run_state), policy, options.databases, found)
        if options.html is not None:
            from sparkcrypt.runs.passes.html.page import status_html

            workplace.write(options.html, status_html(done, options.html))
        if options.metrics is not None:
            from sparkcrypt.runs.passes.metrics import metrics_text

            workplace.write(options.metrics, metrics_text(done))
        workplace.write_report(options.report, done.to_dict())
    show(done.to_dict(), done.to_text(), as_json=options.as_json)
    context.exit(done.exit_code)


@dataclass(frozen=True, kw_only=True)
class LineageOptions(FilterOptions, TablesOptions, CommandOptions):
    """The options of `sparkcrypt lineage`."""

    svg: str | None = option("Also draw it as a picture there: a path or a URI.", metavar="FILE")


@click.command(cls=Command)
@options_from(LineageOptions)
@click.pass_context
def lineage(context: click.Context, options: LineageOptions) -> None:
    """Show where the columns of tables came from, as the writers of their files noted it.

    Without --table and --database, of all databases.  Every table that a chosen table came from is asked as well.  What
    was made of a table is shown for those tables that are chosen: name them, or their database.  Columns by which rows
    were filtered, joined or grouped are shown apart, since no value came from them.  Files that were written without
    the extension of Spark say nothing.  Exits with 74 when the footer of a file could not be read.

    Examples:
      sparkcrypt lineage --table sales.report --policy policy.yaml
      sparkcrypt lineage --database sales --policy policy.yaml --svg lineage.svg
      sparkcrypt lineage --database sales --policy policy.yaml --json
    """
    svg = options.svg
    check_writable(svg, "--svg")
    with Workplace("sparkcrypt lineage", options.launch, short=True) as workplace:
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.passes.choose_tables import Filters
        from sparkcrypt.runs.passes.lineage import trace_lineage

        filters = Filters(options.select, options.exclude)
        traced = trace_lineage(spark, loaded, tables=options.tables, databases=options.databases, filters=filters)
        if svg is not None:
            from sparkcrypt.runs.passes.html.page import draw_lineage

            workplace.write(svg, draw_lineage(traced))
    show(traced.to_dict(), traced.to_text(), as_json=options.as_json)
    context.exit(traced.exit_code)
