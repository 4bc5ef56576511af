"""`sparkcrypt index`: creates, refreshes, verifies and drops the index of a table or a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sparkcrypt.cli.files.index_show import show_index
from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    option,
    options_from,
    report_option,
    require_either,
    table_option,
    use,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.open_places import WEB_HDFS
from sparkcrypt.paths import is_local, local_path, split_path
from sparkcrypt.runs.index.open_index import open_folder_index
from sparkcrypt.runs.table.open_table import Progress
from sparkcrypt.skipping.format.description import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.indexes.build import IndexResult, Wanted, read_kinds
from sparkcrypt.skipping.indexes.entries import (
    FILTER_SHARE,
    LIST_VALUES,
    MAX_FILTER_SHARE,
    MAX_LIST_VALUES,
    MIN_FILTER_SHARE,
)
from sparkcrypt.skipping.indexes.indexed import Comparison, Indexed
from sparkcrypt.text import count_of

APP = "sparkcrypt index"
REPORT_KIND, REPORT_VERSION = "sparkcrypt index", 1
_CONTENTS = {MINMAX: "bounds", VALUES: "values", BLOOM: "Bloom filter"}
"""Kind of index -> what it has of a file."""
_SHOWN = 20
_COMPARED = {
    "altered": "with another footer than was indexed",
    "changed": "of another length than was indexed",
    "new": "not indexed yet",
    "gone": "indexed, and gone since",
}


@dataclass(frozen=True, kw_only=True)
class IndexOptions(CommandOptions):
    """The options that the commands share: the files, the folder of their index, and the policy."""

    table: str | None = use(table_option)
    path: str | None = option("A folder of files instead, without Spark: a path, webhdfs://…", metavar="FOLDER")
    to: str | None = option(
        "With --path: the folder of the index, outside of the files'; by default the table's below index.location of "
        "the policy.",
        "--to",
        "--store",
        metavar="INDEX",
    )


@dataclass(frozen=True, kw_only=True)
class RefreshOptions(IndexOptions):
    """The options of `sparkcrypt index refresh`."""

    report: str | None = use(report_option)


@dataclass(frozen=True, kw_only=True)
class CreateOptions(RefreshOptions):
    """The options of `sparkcrypt index create`."""

    columns: tuple[str, ...] = option(
        "A column and what is indexed of it: minmax (bounds, the default), values or bloom; may be repeated.",
        "--column",
        required=True,
        metavar="COL[:KIND…]",
    )
    most_values: int = option(
        "The maximum number of distinct values in a file's list; the list of a file with more is unknown.",
        type=click.IntRange(1, MAX_LIST_VALUES),
        default=LIST_VALUES,
        show_default=True,
        metavar="NUMBER",
    )
    false_positives: float = option(
        "The false positive rate of Bloom filters.",
        type=click.FloatRange(MIN_FILTER_SHARE, MAX_FILTER_SHARE),
        default=FILTER_SHARE,
        show_default=True,
        metavar="SHARE",
    )
    types: tuple[str, ...] = option(
        "With --path: the type of a partition column that is not a string.", "--partition", metavar="COL=TYPE"
    )
    values: tuple[str, ...] = option(
        "With --path: a partition value of all files that is in no folder's name.", "--value", metavar="COL=VALUE"
    )


@dataclass(frozen=True, kw_only=True)
class DropOptions(IndexOptions):
    """The options of `sparkcrypt index drop`."""

    uuid: str | None = option("The UUID of a table that no longer exists, by `backfill orphans`.", metavar="UUID")


@click.group(cls=Group)
def index() -> None:
    """The data-skipping index of a table: which of its files a query need not open."""


@index.command("create", cls=Command)
@options_from(CreateOptions)
def create(options: CreateOptions) -> None:
    """Index a table's files by bounds of columns, lists of their values, or Bloom filters.

    Bounds are read from footers alone; for values and bloom the pages of that column are read.  A file whose bounds or
    values are unknown is opened by every query.  If a column's own name ends with a kind, two colons follow it.

    With --table folders, partitions and types are those of the catalog, and what is indexed of a column is encrypted
    with the key that the table's plan gives it; a column whose tag gives it a key for each partition is refused.  With
    --path it is encrypted with the key that the column has in the files, and folders named column=value make partition
    columns.  Everything else is encrypted with the footer's key.  Files that changed less than two seconds ago are left
    out.  An existing index is replaced.

    Examples:
      sparkcrypt index create --table sales.flights --column id --column email:bloom --policy policy.yaml
      sparkcrypt index create --path warehouse/flights --column email:bloom --column city:values:minmax \
--policy policy.yaml
      sparkcrypt index create --path warehouse/flights --to indexes/flights --column id --partition day=date \
--policy policy.yaml
    """
    _check_names(options)
    if options.table is not None and (options.types or options.values):
        raise click.UsageError("--partition and --value go with --path; a table's are those of the catalog")
    pairs = _read_pairs("--partition", options.types), _read_pairs("--value", options.values)
    wanted = Wanted(read_kinds(options.columns), *pairs, options.most_values, options.false_positives)
    _build(options, lambda indexed: indexed.create(wanted))


@index.command("refresh", cls=Command)
@options_from(RefreshOptions)
def refresh(options: RefreshOptions) -> None:
    """Update a table's index: read new and changed files, and keep what is indexed of the others.

    A file is unchanged if its path, modification time and length are.  With --table what is indexed of a column is
    encrypted with the column's current key.  If nothing has changed, nothing is written.

    Examples:
      sparkcrypt index refresh --table sales.flights --policy policy.yaml
      sparkcrypt index refresh --path warehouse/flights --policy policy.yaml
    """
    _check_names(options)
    _build(options, Indexed.refresh)


@index.command("verify", cls=Command)
@options_from(IndexOptions)
def verify(options: IndexOptions) -> None:
    """Compare a table's index with its files: names, times, lengths and the keyed digests of their footers.

    New and changed files are listed, and are no error: queries open them.  A file with the name, time and length of the
    indexed one but another footer is an error (74): queries would miss its rows.

    Examples:
      sparkcrypt index verify --table sales.flights --policy policy.yaml
      sparkcrypt index verify --path warehouse/flights --policy policy.yaml
    """
    _check_names(options)
    with Workplace(APP, options.launch) as workplace:
        indexed = _open(workplace, options)
        named, uri, found = _name(options, indexed), indexed.store.folder.uri, indexed.verify()
    document = {
        **named,
        "store": uri,
        "generation": found.generation,
        "fresh": found.is_fresh,
        "same": found.same,
        **{kind: list(getattr(found, kind)) for kind in _COMPARED},
    }
    show(document, _describe_comparison(uri, found), as_json=options.as_json)
    if found.altered:
        raise VerificationError(
            f"{found.altered[0]}: has the name, time and length of the file that was indexed, and another footer"
            f"{f', as have {len(found.altered) - 1} others' if len(found.altered) > 1 else ''}; find out who wrote it, "
            "then index the files again with `sparkcrypt index create`"
        )


@index.command("drop", cls=Command)
@options_from(DropOptions)
def drop(options: DropOptions) -> None:
    """Delete a table's index: its own files and nothing else.

    It is refused while another process writes the index, if the folder has other files, and if a table is at, in or
    above the folder: with --table and --uuid by the metastore and the policy, with --path by the policy alone.

    Examples:
      sparkcrypt index drop --table sales.flights --policy policy.yaml
      sparkcrypt index drop --path warehouse/flights --policy policy.yaml
    """
    uuid = options.uuid
    if uuid is None:
        _check_names(options)
    elif options.table or options.path or options.to:
        raise click.UsageError("--uuid names an index by itself; leave --table, --path and --to out")
    with Workplace(APP, options.launch) as workplace:
        if uuid is None:
            indexed = _open(workplace, options)
            uri, deleted = indexed.store.folder.uri, indexed.drop()
        else:
            loaded, spark = workplace.policy(options.policy), workplace.spark
            from sparkcrypt.runs.index.table_index import drop_index

            uri, deleted = drop_index(spark, loaded, uuid)
    names = {"table": options.table, "path": options.path, "uuid": uuid}
    named = {key: value for key, value in names.items() if value is not None}
    document = {**named, "store": uri, "deleted": list(deleted)}
    show(document, f"{uri}: dropped, {count_of(len(deleted), 'file')}", as_json=options.as_json)


index.add_command(show_index)


def _check_names(options: IndexOptions) -> None:
    """Refuse a call that does not name either a table or a folder, or gives a table's index a folder.

    Raises:
        click.UsageError: the message names the options.
    """
    require_either(options.table, options.path)
    if options.table is not None and options.to is not None:
        raise click.UsageError("--to goes with --path; a table's index is below index.location of the policy")


def _open(workplace: Workplace, options: IndexOptions, progress: Progress | None = None) -> Indexed:
    """Return the index of the table or folder.

    Raises:
        ConfigError: the policy cannot be read, or the files' file system cannot be accessed without Spark.
        As `open_table_index` and `open_folder_index`.
    """
    policy, path = workplace.policy(options.policy), options.path
    if options.table is not None:
        spark = workplace.spark
        from sparkcrypt.runs.index.table_index import open_table_index

        return open_table_index(spark, options.table, policy, progress)
    if not is_local(str(path)) and split_path(str(path))[0] not in WEB_HDFS:
        raise ConfigError(
            f"{path}: is not reached without Spark's configuration; allowed: a local path, file:, "
            f"{', '.join(f'{name}:' for name in WEB_HDFS)}"
        )
    folder, to = _make_absolute(str(path)), None if options.to is None else _make_absolute(options.to)
    state_store = workplace.state_directory(policy.run_state)
    return open_folder_index(folder, to, policy, state_store, policy_keys(policy), progress)


def _build(options: RefreshOptions, build: Callable[[Indexed], IndexResult]) -> None:
    """Create or refresh an index; print the result, and write the report with the result, or with the error."""
    check_writable(options.report)
    target = options.table or options.path
    with (
        Workplace(APP, options.launch) as workplace,
        failed_report(workplace, options.report, target, kind=REPORT_KIND, version=REPORT_VERSION),
    ):
        indexed = _open(workplace, options, progress_on_stderr("index"))
        result = build(indexed)
        document = {**_name(options, indexed), **result.to_dict()}
        if options.report is not None:
            head = {"kind": REPORT_KIND, "version": REPORT_VERSION, "table": target, "outcome": "done"}
            workplace.write(options.report, json.dumps({**head, **document}, indent=2, ensure_ascii=False) + "\n")
    show(document, _describe_result(result), as_json=options.as_json)


def _name(options: IndexOptions, indexed: Indexed) -> dict[str, Any]:
    return {"table": indexed.source.name} if options.path is None else {"path": options.path}


def _describe_comparison(store: str, found: Comparison) -> str:
    """Return the comparison of files with their index as text."""
    lines = [f"{store}: generation {found.generation}, {count_of(found.same, 'file')} as indexed"]
    for kind, what in _COMPARED.items():
        names = getattr(found, kind)
        if names:
            lines.append(f"  {count_of(len(names), 'file')} {what}:")
            lines += [f"    {name}" for name in names[:_SHOWN]]
            if len(names) > _SHOWN:
                lines.append(f"    and {len(names) - _SHOWN:,} more; --json lists all")
    return "\n".join(lines)


def _describe_result(result: IndexResult) -> str:
    """Return the result of creating or refreshing an index as text."""
    state = f"{count_of(result.read, 'file')} read" if result.written else "nothing has changed"
    lines = [f"{result.store}: generation {result.generation}, {count_of(result.objects, 'object')}, {state}"]
    if result.left_out:
        lines.append(f"  left out, since they were changed a moment ago: {count_of(len(result.left_out), 'file')}")
    for index, reasons in result.unknown.items():
        column, _, kind = index.rpartition(" ")
        what = f"  {column}: {_CONTENTS[kind]} unknown of"
        lines += [f"{what} {count_of(number, 'file')}: {why}" for why, number in reasons.items()]
    return "\n".join(lines)


def _read_pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name or name in found:
            raise click.UsageError(f"{option} {value}: is not COL=TEXT, or names a column twice")
        found[name] = rest
    return found


def _make_absolute(uri: str) -> str:
    return str(Path(local_path(uri)).absolute()) if is_local(uri) else uri.rstrip("/")
