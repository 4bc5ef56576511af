"""`sparkcrypt tags`: shows, sets, removes and copies the tags of a table's columns in the metastore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import (
    Launch,
    json_option,
    option,
    optional_policy_option,
    options_from,
    spark_options,
    use,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.cli.tables.pull import pull
from sparkcrypt.cli.tables.suggest import suggest_tags
from sparkcrypt.schema import join_dotted
from sparkcrypt.tags.model import TaggedColumn, tags_of_avro, tags_of_overlay
from sparkcrypt.text import align_table, count_of

_APP = "sparkcrypt tags"


@click.group(cls=Group)
def tags() -> None:
    """Show and set the tags of a table's columns, in the metastore."""


@tags.command("show", cls=Command)
@click.argument("table", required=False, metavar="[DB.TABLE]")
@click.option(
    "--avro-schema", "avro_schema", metavar="FILE", help="Show the tags of an .avsc file; this needs no Spark."
)
@optional_policy_option
@json_option
@spark_options
def show_tags(table: str | None, avro_schema: str | None, policy: str | None, as_json: bool, launch: Launch) -> None:
    """Show the tags of a table, or of an Avro schema: column, tags, and the place that they come from.

    With --policy the tags that the policy lays over the table are shown as well.  Tags that have no effect are named
    with the reason: properties that nothing reads, columns that do not exist, formats that are not encrypted.

    Examples:
      sparkcrypt tags show sales.customers
      sparkcrypt tags show --avro-schema customer.avsc
    """
    if table is None and avro_schema is None:
        raise click.UsageError("give a table, --avro-schema, or both")
    with Workplace(_APP, launch, short=True) as workplace:
        loaded = workplace.policy(policy) if policy else None
        avro = workplace.avro(avro_schema) if avro_schema else None
        found: list[TaggedColumn] = [] if avro is None else list(tags_of_avro(avro))
        warnings: list[str] = []
        if table is not None:
            from sparkcrypt.spark.tables.catalog import Catalog
            from sparkcrypt.spark.tables.planning import find_tags_without_effect
            from sparkcrypt.spark.tables.tagging import tags_of_table

            catalog_table = Catalog(workplace.spark).table(table)
            table = catalog_table.full_name
            rule = loaded.table(table) if loaded else None
            warnings = list(find_tags_without_effect(workplace.spark, catalog_table, loaded))
            found += [*tags_of_table(workplace.spark, catalog_table), *tags_of_overlay(dict(rule.tags) if rule else {})]
    document = {"table": table, "tags": [column.to_dict() for column in found], "warnings": warnings}
    rows = [
        (join_dotted(entry.path), ",".join(entry.tags), entry.source)
        for entry in sorted(found, key=lambda entry: (entry.path, entry.source))
    ]
    text = (
        align_table(rows, head=("column", "tags", "from"))
        if rows
        else f"{table or avro_schema}: no column carries a tag"
    )
    show(document, "\n".join([text, *(f"tag without effect: {line}" for line in warnings)]), as_json=as_json)


@tags.command("set", cls=Command)
@click.argument("table", metavar="DB.TABLE")
@click.argument("words", nargs=-1, required=True, metavar="COLUMN TAG[,TAG] | COLUMN=TAG[,TAG]…")
@optional_policy_option
@json_option
@spark_options
def set_(table: str, words: tuple[str, ...], policy: str | None, as_json: bool, launch: Launch) -> None:
    """Set the tags of columns; they replace those that a column has.

    A nested column is written with dots (people.element.ssn); a dot inside a name as %2E.  With --policy, tags that the
    policy does not define are refused, and one that differs from a single tag of it in case alone is taken for that.

    Examples:
      sparkcrypt tags set sales.customers ssn pii
      sparkcrypt tags set sales.customers ssn=pii phones.element=contact,pii --policy policy.yaml
    """
    wanted = _columns_and_tags(words)
    with Workplace(_APP, launch, short=True) as workplace:
        loaded = workplace.policy(policy) if policy else None
        from sparkcrypt.spark.tables.tagging import set_tags

        put = set_tags(workplace.spark, table, wanted, loaded)
    if loaded is None:
        say("the tags were not compared with a policy; with --policy, one that it does not define is refused")
    _write_changed(table, put, as_json)


def _columns_and_tags(words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return column -> tags of ``COLUMN TAG`` or of several ``COLUMN=TAG``."""
    if len(words) == 2 and not any("=" in word for word in words):
        pairs = [words]
    else:
        pairs = [(column, names) for column, sign, names in (word.rpartition("=") for word in words) if sign]
        if len(pairs) < len(words):
            raise click.UsageError("give one column and its tags, COLUMN TAG[,TAG], or several as COLUMN=TAG[,TAG]")
    wanted = {column: tuple(name.strip() for name in names.split(",")) for column, names in pairs}
    for column in wanted:
        if "," in column:
            raise click.UsageError(f"{column!r}: give each column its own tags: {column.replace(',', '=TAG ')}=TAG")
    return wanted


@tags.command(cls=Command)
@click.argument("table", metavar="DB.TABLE")
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN…")
@optional_policy_option
@json_option
@spark_options
def unset(table: str, columns: tuple[str, ...], policy: str | None, as_json: bool, launch: Launch) -> None:
    """Remove all tags of columns; later writes of theirs are as the policy treats untagged columns.

    With --policy, columns are named whose tags stay, since the policy's rule of the table gives them.

    Examples:
      sparkcrypt tags unset sales.customers nickname
    """
    with Workplace(_APP, launch, short=True) as workplace:
        loaded = workplace.policy(policy) if policy else None
        from sparkcrypt.spark.tables.catalog import Catalog
        from sparkcrypt.spark.tables.tagging import unset_tags

        unset_tags(workplace.spark, table, columns)
        rule = loaded.table(Catalog(workplace.spark).table(table).full_name) if loaded else None
    tags_by_column = {
        join_dotted(entry.path).lower(): entry.tags for entry in tags_of_overlay(dict(rule.tags) if rule else {})
    }
    for column in columns:
        if column.lower() in tags_by_column:
            tags_left = ",".join(tags_by_column[column.lower()])
            say(f"warning: {column} still has {tags_left}, by the policy's 'tables'; take it out there too")
    _write_changed(table, dict.fromkeys(columns, ()), as_json)


@tags.command(cls=Command)
@click.option("--avro-schema", "avro_schema", required=True, metavar="FILE", help="An .avsc file: a path or a URI.")
@click.option("--table", required=True, metavar="DB.TABLE", help="The table that gets the tags.")
@optional_policy_option
@json_option
@spark_options
def copy(avro_schema: str, table: str, policy: str | None, as_json: bool, launch: Launch) -> None:
    """Copy the tags of an Avro schema (confluent:tags) to a table, from the ingestion store to the metastore.

    Examples:
      sparkcrypt tags copy --avro-schema customer.avsc --table sales.customers
    """
    with Workplace(_APP, launch, short=True) as workplace:
        loaded = workplace.policy(policy) if policy else None
        avro = workplace.avro(avro_schema)
        from sparkcrypt.spark.tables.tagging import copy_tags

        copied = copy_tags(workplace.spark, table, avro, loaded)
    _write_changed(table, copied, as_json)


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """The options of `sparkcrypt tags apply`."""

    files: tuple[str, ...] = use(click.argument("files", nargs=-1, required=True, metavar="FILE…"))
    remove: bool = option(
        "Also take back what earlier files put there and these do not say, and put tags that make a column plaintext.",
        "--remove",
        "--prune",
    )
    dry_run: bool = option("Show what would be done, and do nothing.")
    policy: str | None = use(optional_policy_option)
    as_json: bool = use(json_option)
    launch: Launch = use(spark_options)


@tags.command(cls=Command)
@options_from(ApplyOptions)
def apply(options: ApplyOptions) -> None:
    """Put the rules of tables into the tables' own properties: tags, require_encryption, and a UUID.

    FILE is a policy file, or has the shape of a policy's `tables`, as `sparkcrypt tags pull` makes it; of several, the
    rules of one table are united.  Sessions then find the rules in the tables, also where nothing told them the tables'
    names.  Tags that a table has of its own stay.

    Without --remove no tag is removed, and none is put that would make an encrypted column plaintext; both are listed.
    Without --policy it is not known what a tag means, so a column that has tags gets no others.  --remove goes by all
    files that were applied before: give together all that are to stay.

    Examples:
      sparkcrypt tags apply policy.yaml --policy policy.yaml
      sparkcrypt tags apply policy.yaml pulled.yaml --policy policy.yaml --remove --dry-run --json
    """
    with Workplace(_APP, options.launch, short=True) as workplace:
        loaded = workplace.policy(options.policy) if options.policy else None
        rules = [rule for file in options.files for rule in workplace.rules(file)]
        from sparkcrypt.spark.tables.table_rules import put_rule, rule_changes

        changes, absent = rule_changes(workplace.spark, rules, loaded, remove=options.remove)
        for change in () if options.dry_run else changes:
            put_rule(workplace.spark, change, loaded)
    document = {"dry_run": options.dry_run, "changes": [change.to_dict() for change in changes], "absent": list(absent)}
    lines = [f"{change.table}: {line}" for change in changes for line in change.lines()]
    lines += [f"{name}: not in the catalog; it is under its rule where Spark has the extension" for name in absent]
    done = "would be changed" if options.dry_run else "changed"
    changed = count_of(sum(change.is_needed for change in changes), "table")
    held = [f"{change.table}: {entry.line()}" for change in changes for entry in change.held]
    text = [f"{changed} {done}", *(f"  {line}" for line in lines)]
    text += (
        [f"{count_of(len(held), 'change')} left out; --remove makes them", *(f"  {line}" for line in held)]
        if held
        else []
    )
    show(document, "\n".join(text), as_json=options.as_json)


@tags.command(cls=Command)
@click.argument("database", metavar="DATABASE")
@json_option
@spark_options
def names(database: str, as_json: bool, launch: Launch) -> None:
    """List the names of tables whose tags are remembered, with what the next table of such a name gets.

    The metastore keeps them when a table is dropped, as properties of its database.

    Examples:
      sparkcrypt tags names sales
    """
    with Workplace(_APP, launch, short=True) as workplace:
        from sparkcrypt.spark.tables.remembered_names import remembered_names

        found = remembered_names(workplace.spark, database)
    rows = [(table, column, ",".join(tags)) for table, record in found.items() for column, tags in record.tags.items()]
    text = align_table(rows, head=("table", "column", "tags")) if rows else f"{database}: no name is remembered"
    show(
        {"database": database, "names": {table: record.to_dict() for table, record in found.items()}},
        text,
        as_json=as_json,
    )


@tags.command(cls=Command)
@click.argument("table", metavar="DB.TABLE")
@json_option
@spark_options
def forget(table: str, as_json: bool, launch: Launch) -> None:
    """Forget the tags of a name whose table was dropped, so that the next table of this name does not get them.

    A running application that dropped the table itself remembers them until it ends.

    Examples:
      sparkcrypt tags forget sales.customers
    """
    with Workplace(_APP, launch, short=True) as workplace:
        from sparkcrypt.spark.tables.remembered_names import forget_tags

        before = forget_tags(workplace.spark, table)
    columns = {} if before is None else before.tags
    document = {"table": table, "forgotten": {column: list(tags) for column, tags in columns.items()}}
    lines = [f"{column}: {','.join(tags)}" for column, tags in columns.items()]
    show(document, "\n  ".join([f"{table}: {count_of(len(columns), 'column')} forgotten", *lines]), as_json=as_json)


tags.add_command(pull)
tags.add_command(suggest_tags)


def _write_changed(table: str, columns: dict[str, Any], as_json: bool) -> None:
    lines = [f"{column}: {','.join(names) or 'no tags'}" for column, names in columns.items()]
    done = "set" if any(columns.values()) else "without tags now"
    text = f"{table}: {count_of(len(columns), 'column')} {done}\n" + "\n".join(f"  {line}" for line in lines)
    document = {"table": table, "columns": {column: list(names) for column, names in columns.items()}}
    show(document, text, as_json=as_json)
