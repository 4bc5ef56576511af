"""`sparkcrypt tags pull`: makes rules of tables of the tags that people keep in other products."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.options import json_option, option, optional_policy_option, options_from, use
from sparkcrypt.cli.frame.output import encode_json, say, show
from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import is_local, local_path
from sparkcrypt.policy.load import MAX_BYTES, load_policy
from sparkcrypt.tags.pull import SOURCES, Names, Pulled, pull_tags, read_export
from sparkcrypt.text import count_of


@dataclass(frozen=True, kw_only=True)
class PullOptions:
    """The options of `sparkcrypt tags pull`."""

    exports: tuple[str, ...] = use(click.argument("exports", nargs=-1, required=True, metavar="EXPORT…"))
    source: str = option("The product that exported them.", "--from", type=click.Choice(SOURCES), required=True)
    tags: tuple[str, ...] = option(
        "What a tag of theirs means; may be repeated. One without is taken by its own name.",
        "--map",
        metavar="THEIRS=TAG[,TAG]",
    )
    tables: tuple[str, ...] = option(
        "The Hive name of a table of theirs; one * on both sides stands for the same text; may be repeated.",
        "--table",
        metavar="THEIRS=DB.TABLE",
    )
    only: tuple[str, ...] = option("Only these Hive tables; may be repeated.", metavar="PATTERN")
    output: str | None = option("Write the rules there instead of to stdout: a local path.", metavar="FILE")
    policy: str | None = use(optional_policy_option)
    as_json: bool = use(json_option)


@click.command(cls=Command)
@options_from(PullOptions)
def pull(options: PullOptions) -> None:
    """Make the file that `sparkcrypt tags apply` takes from what another product exported; no table is changed.

    EXPORT is a local file, or - for stdin: of confluent an answer to GET /schemas, of datahub a GraphQL answer, of
    ranger the tags of a service, of unity rows of information_schema.column_tags, of dbt manifest.json, of openlineage
    events.  With --policy, tags that it does not define are left out.  What is left out is named on stderr, and in
    JSON.

    A table without --table has the last two of its dotted names; a subject of confluent needs --table.

    Examples:
      sparkcrypt tags pull --from dbt target/manifest.json --map PII.Email=pii --policy policy.yaml --output pulled.yaml
      sparkcrypt tags pull --from confluent schemas.json --table '*-value=lake.*' --policy policy.yaml
    """
    check_writable(options.output, "--output")
    policy = load_policy(options.policy) if options.policy else None
    names = Names(
        {theirs: tuple(map(str.strip, ours.split(","))) for theirs, ours in _pairs(options.tags, "--map")},
        dict(_pairs(options.tables, "--table")),
        options.only,
        None if policy is None else tuple(rule.name for rule in policy.tags),
    )
    texts = ((export, _read(export)) for export in options.exports)
    pulled = pull_tags(
        (tag for export, text in texts for tag in read_export(options.source, text, export, names)), names
    )
    rules = pulled.to_yaml()
    if len(rules) > MAX_BYTES:
        raise ConfigError(f"the rules have more than {MAX_BYTES:,} bytes; make several files, by --only 'database.*'")
    if options.output is not None:
        with Workplace("sparkcrypt tags pull") as workplace:
            workplace.write(options.output, rules)
    for line in _left_out(pulled):
        say(line)
    columns = sum(map(len, pulled.tables.values()))
    done = f"{options.output}: {count_of(columns, 'column')} of {count_of(len(pulled.tables), 'table')}"
    show(pulled.to_dict(), rules.rstrip() if options.output is None else done, as_json=options.as_json)


def _left_out(pulled: Pulled) -> list[str]:
    lines = [
        f"left out: tag {encode_json(tag)} of {count_of(number, 'column')} means no tag; --map gives it a meaning"
        for tag, number in pulled.unknown_tags.items()
    ]
    return lines + [
        f"left out: table {encode_json(table)} with {count_of(number, 'tag')} has no Hive name; --table gives it one"
        for table, number in pulled.unknown_tables.items()
    ]


def _pairs(words: tuple[str, ...], flag: str) -> list[tuple[str, str]]:
    pairs = [word.rpartition("=") for word in words]
    for word, (theirs, _, ours) in zip(words, pairs, strict=True):
        if not theirs or not ours.strip():
            raise click.UsageError(f"{flag} {word}: give THEIRS=OURS")
    return [(theirs, ours.strip()) for theirs, _, ours in pairs]


def _read(export: str) -> str:
    try:
        if export == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        if not is_local(export):
            raise ConfigError(f"{export}: is no local file; save the answer to a file, or pipe it to -")
        return Path(local_path(export)).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{export}: cannot be read ({reason}); name a file that the product exported") from error
