"""`sparkcrypt tags suggest`: names columns that look personal, as a file for `sparkcrypt tags apply`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
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
from sparkcrypt.errors import PlanError
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import fold
from sparkcrypt.tags.pull import Pulled
from sparkcrypt.tags.suggest import KINDS, Suggestion, list_columns, suggest
from sparkcrypt.text import count_of


@dataclass(frozen=True, kw_only=True)
class SuggestOptions:
    """The options of `sparkcrypt tags suggest`."""

    table: str = use(click.argument("table", metavar="DB.TABLE"))
    tag: str = option("The tag that is suggested.", default="pii", show_default=True, metavar="TAG")
    kinds: tuple[str, ...] = option(
        f"Another tag for a kind; may be repeated. Kinds: {', '.join(KINDS)}.", "--map", metavar="KIND=TAG"
    )
    samples: int = option(
        "How many rows are looked at; 0 goes by names alone.",
        type=click.IntRange(0, 10_000),
        default=200,
        show_default=True,
        metavar="ROWS",
    )
    output: str | None = option("Write the rules there instead of to stdout: a path or a URI.", metavar="FILE")
    policy: str | None = use(optional_policy_option)
    as_json: bool = use(json_option)
    launch: Launch = use(spark_options)


@click.command("suggest", cls=Command)
@options_from(SuggestOptions)
def suggest_tags(options: SuggestOptions) -> None:
    """Suggest tags for the columns of a table that look personal, each with the reason; the table is not changed.

    It goes by English words in the names of columns, and by the form of some values: e-mail addresses, IBANs, numbers
    of payment cards, international phone numbers, IP addresses and social security numbers.  Values are looked at in
    memory alone; neither the output nor the file has any.  Columns that have a tag are left out, with --policy also
    those that the policy tags.  A column that is not named may be as personal: read the table's other columns too.

    The rules are in the form of `sparkcrypt tags apply`: remove from them what is wrong, and apply the rest.

    Examples:
      sparkcrypt tags suggest sales.customers --policy policy.yaml --output suggested.yaml
      sparkcrypt tags suggest sales.customers --map email=contact --map phone=contact --samples 0
    """
    check_writable(options.output, "--output")
    meant = _tags_of_kinds(options.kinds)
    with Workplace("sparkcrypt tags suggest", options.launch) as workplace:
        policy = workplace.policy(options.policy) if options.policy else None
        tags = {kind: _known(meant.get(kind, options.tag), policy) for kind in KINDS}
        name, found, notes = _look(workplace, options, policy)
        columns = {entry.column: [tags[entry.kind]] for entry in found}
        rules = Pulled({name.lower(): columns} if columns else {}, {}, {}).to_yaml()
        if options.output is not None:
            workplace.write(options.output, rules)
    for entry in found:
        say(f"{entry.column}: {tags[entry.kind]}: {entry.kind}: {entry.why}")
    for note in notes:
        say(f"note: {note}")
    document = {
        "table": name,
        "suggestions": [{**entry.to_dict(), "tags": [tags[entry.kind]]} for entry in found],
        "notes": notes,
    }
    done = f"{options.output}: {count_of(len(found), 'column')} of {name}"
    show(document, rules.rstrip() if options.output is None else done, as_json=options.as_json)


def _look(
    workplace: Workplace, options: SuggestOptions, policy: Policy | None
) -> tuple[str, list[Suggestion], list[str]]:
    """Return the table's name, what looks personal in it, and notes on what could not be suggested."""
    spark = workplace.spark
    from sparkcrypt.spark.setup.session import configure
    from sparkcrypt.spark.tables.catalog import Catalog, sample_texts
    from sparkcrypt.spark.tables.tagging import tags_of_table
    from sparkcrypt.tags.model import tags_of_overlay

    table = Catalog(spark).table(options.table)
    overlay = {} if policy is None else dict(policy.table(table.full_name).tags)
    tagged = {fold(column.path) for column in (*tags_of_table(spark, table), *tags_of_overlay(overlay))}
    partition = {column.lower() for column in table.partition_columns}
    columns = [
        column
        for column in list_columns(table.schema_json)
        if not any(fold(column.path[:length]) in tagged for length in range(1, len(column.path) + 1))
    ]
    data = [column for column in columns if column.path[0].lower() not in partition]
    if policy is not None and options.samples:
        configure(spark, policy)  # columns that are encrypted already are read with their keys
    texts = [column.path for column in data if column.has_texts] if options.samples else []
    try:
        samples, notes = sample_texts(spark, table, texts, options.samples), list[str]()
    except PlanError as error:
        samples, notes = {}, [f"{error}; names alone were looked at"]
    at_folders = suggest((column for column in columns if column not in data), {})
    notes += [
        f"{entry.column} looks personal ({entry.why}), and is a partition column, whose values are names of folders "
        "and cannot be encrypted; partition by another column"
        for entry in at_folders
    ]
    return table.full_name, list(suggest(data, samples)), notes


def _tags_of_kinds(words: tuple[str, ...]) -> dict[str, str]:
    """Return kind -> tag of ``KIND=TAG``."""
    meant = {}
    for word in words:
        kind, _, tag = word.partition("=")
        if kind not in KINDS or not tag.strip():
            raise click.UsageError(f"--map {word}: give KIND=TAG; kinds: {', '.join(KINDS)}")
        meant[kind] = tag.strip()
    return meant


def _known(tag: str, policy: Policy | None) -> str:
    """Return a tag as the policy writes it.

    Raises:
        PlanError: the policy does not define it.
    """
    if policy is None:
        return tag
    rule = policy.find_tag(tag)
    if rule is None:
        known = ", ".join(rule.name for rule in policy.tags)
        raise PlanError(f"the policy does not define the tag {tag!r}; allowed: {known}; name one by --tag or --map")
    return rule.name
