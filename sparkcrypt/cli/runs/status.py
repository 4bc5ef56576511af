"""`sparkcrypt status`: the state of all tables at a glance, as text, JSON, a page, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.options import CommandOptions, option, options_from
from sparkcrypt.cli.frame.output import align_table, cut_lines, show
from sparkcrypt.text import age_of, count_of, parse_time, percent, size_of

if TYPE_CHECKING:
    from datetime import datetime

    from sparkcrypt.runs.passes.estate import EstateStatus, TableStatus

_APP = "sparkcrypt status"
_TAGS_HEAD = ("tag", "encrypted as planned", "bytes", "files")
_HEAD = ("table", "last pass", "ago", "figures", "left", "plaintext awaiting expiry", "problems")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(CommandOptions):
    """The options of `sparkcrypt status`."""

    databases: tuple[str, ...] = option("Only the tables of this database.", "--database", metavar="NAME")
    fresh: bool = option("Scan the tables now, as `backfill --dry-run` does; it needs Spark, and reads footers.")
    html: str | None = option("Also write a page with pictures there: a path or a URI.", metavar="FILE")
    metrics: str | None = option(
        "Also write metrics there, as node exporter's textfile collector reads them: FILE.prom.", metavar="FILE"
    )


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
    with Workplace(_APP, options.launch, short=not options.fresh) as workplace:
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
    show(done.to_dict(), describe(done), as_json=options.as_json)
    context.exit(done.exit_code)


def describe(done: EstateStatus) -> str:
    """Return the status as text: a line of sums, the coverage of each tag, a line for each table, and what is wrong."""
    totals, now = done.totals(), parse_time(done.at)
    if not done.tables:
        return "no table is known in this state directory; passes of `sparkcrypt backfill` record theirs"
    matching = totals["surveyed"] - totals["untagged"] - totals["drifting"]
    parts = [
        f"{count_of(totals['tables'], 'table')}: {matching:,} as planned, {totals['drifting']:,} with drift, "
        f"{totals['untagged']:,} untagged, {totals['tables'] - totals['surveyed']:,} not surveyed",
        f"plaintext awaiting expiry: {count_of(totals['plaintext_files_awaiting_expiry'], 'file')}, "
        f"{size_of(totals['plaintext_bytes_awaiting_expiry'])}",
    ]
    tags = [
        (
            tag,
            percent(found.matching_bytes, found.total_bytes),
            f"{size_of(found.matching_bytes)} of {size_of(found.total_bytes)}",
            f"{found.matching_files:,} of {found.files:,}",
        )
        for tag, found in done.coverage.items()
    ]
    if tags:
        parts += ["", align_table(tags, head=_TAGS_HEAD)]
    rows = align_table([_row(table, now) for table in done.tables], head=_HEAD).splitlines()
    parts += ["", rows[0], *cut_lines(rows[1:])]
    wrong = list(_list_wrong(done))
    parts += ["", *cut_lines(wrong)] if wrong else []
    return "\n".join(parts)


def _row(table: TableStatus, now: datetime) -> tuple[object, ...]:
    last, figures, waiting = table.last, table.figures, table.awaiting
    left = None
    if figures is not None:
        left = f"{count_of(figures.units_left, 'unit')}, {size_of(figures.bytes_left)}" if table.drifts else "nothing"
        left = "untagged" if table.untagged else left
    plain = None if waiting is None else "none"
    if waiting is not None and waiting.plaintext_files:
        plain = f"{size_of(waiting.plaintext_bytes)} for {age_of(waiting.plaintext_since, now)}"
    return (
        table.table,
        None if last is None else last.outcome,
        None if last is None else age_of(last.tried, now),
        None if figures is None else f"{age_of(figures.at, now)} old",
        left,
        plain,
        len(table.problems) or None,
    )


def _list_wrong(done: EstateStatus) -> Iterator[str]:
    for table in done.tables:
        yield from (f"open problem: {table.table}: {problem.message}" for problem in table.problems)
        if table.tags_lost:
            yield f"tags lost: {table.table}: {table.tags_lost}"
        if table.last is not None and table.last.reason and not table.tags_lost:
            yield f"{table.last.outcome}: {table.table}: {table.last.reason}"
        if table.awaiting is not None and table.awaiting.beyond_grace:
            yield (
                f"beyond its grace: {table.table}: old files since {table.awaiting.since}: "
                f"`sparkcrypt backfill expire --table {table.table}`"
            )
        if table.unfinished:
            yield f"unfinished: {table.table}: run {table.unfinished} is at work, or was interrupted"
        if table.records_since:
            yield (
                f"changed since: {table.table}: its figures lack what {count_of(table.records_since, 'record')} of "
                "its log did later; the next pass, or --fresh, has it"
            )
    for earlier in done.earlier:
        yield (
            f"made again: {earlier.table}: the table with the id {earlier.table_id} had this name, and was dropped or "
            "renamed; `sparkcrypt backfill orphans` finds what it left"
        )
    yield from (f"rotation overdue: {key.message}" for key in done.overdue or ())
    if done.keys_unknown:
        yield f"whether keys are overdue is not known: {done.keys_unknown}"
