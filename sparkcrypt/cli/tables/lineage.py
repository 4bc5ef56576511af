"""`sparkcrypt lineage`: shows which columns of tables were derived from which tagged columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.options import CommandOptions, FilterOptions, TablesOptions, option, options_from
from sparkcrypt.cli.frame.output import cut_lines, show
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.lineage import Column, DerivedColumn, Lineage, TableLineage


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
    show(traced.to_dict(), lineage_text(traced), as_json=options.as_json)
    context.exit(traced.exit_code)


def lineage_text(traced: Lineage) -> str:
    """Return a paragraph for each table, and a last one for tables whose lineage is unknown."""
    paragraphs = ["\n".join(_lines_of_table(traced, table)) for table in traced.tables]
    unknown = [f"not looked at: {name}: {why}" for name, why in traced.unknown.items()]
    return "\n\n".join([*paragraphs, *(["\n".join(unknown)] if unknown else [])])


def _lines_of_table(traced: Lineage, table: TableLineage) -> list[str]:
    lines = [f"{table.table}: {count_of(table.files, 'file')}"]
    lines += [f"  {_column_text(column)}" for column in table.columns]
    if table.conditions:
        lines.append(f"  rows chosen by {_names(table.conditions)}")
    lines += [f"  {column} -> {_names(made)}" for column, made in _group_derived(traced, table.table).items()]
    if len(lines) == 1:
        lines.append("  nothing came from a tagged column")
    if table.cut:
        lines.append("  a file names only the first of its many sources")
    return [*lines, *cut_lines([f"  not read: {file}: {why}" for file, why in table.unreadable.items()], "  ")]


def _column_text(column: DerivedColumn) -> str:
    lacked = f", {','.join(column.inherited)} not its table's own" if column.inherited else ""
    parts = [_names(column.origins)] if column.origins else []
    parts += [f"declassified {_names(column.declassified)}"] if column.declassified else []
    return f"{column.name} ({','.join(column.tags) or 'no tag'}{lacked}) <- {', '.join(parts)}"


def _group_derived(traced: Lineage, table: str) -> dict[str, tuple[Column, ...]]:
    """Return column of a table -> the columns that were derived from it."""
    derived = [derived for found in traced.tables for derived in found.columns]
    used = {column for made in derived for column in made.sources}
    return {column: traced.list_derived(table, column) for source, column in sorted(used) if source == table}


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(f"{table}.{column}" for table, column in columns)
