"""`sparkcrypt index`: creates, refreshes, verifies, shows and drops the index of a table or a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.named_files import named_files, policy_keys
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    Launch,
    json_option,
    option,
    optional_policy_option,
    options_from,
    report_option,
    require_either,
    spark_options,
    table_option,
    use,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.open_places import WEB_HDFS
from sparkcrypt.files.parquet import FileSummary, summarise
from sparkcrypt.paths import is_local, local_path, split_path
from sparkcrypt.runs.table.folder_index import open_folder_index
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.skipping.format.description import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.format.store import IndexEntries, Store, StorePart, merge_parts, read_part
from sparkcrypt.skipping.format.values import Budget
from sparkcrypt.skipping.indexes.build import IndexResult, Wanted, read_kinds
from sparkcrypt.skipping.indexes.entries import (
    FILTER_SHARE,
    LIST_VALUES,
    MAX_FILTER_SHARE,
    MAX_LIST_VALUES,
    MIN_FILTER_SHARE,
)
from sparkcrypt.skipping.indexes.indexed import Comparison, Freshness, Indexed
from sparkcrypt.text import align_table, count_of, size_of

_FOOTERS = {"encrypted": "encrypted", "plaintext_signed": "in clear, signed", "plaintext": "not encrypted"}
_FIELDS = ("version", "table", "objects", "repeated", "labels", "partitions", "indexes")
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


@click.command("show", cls=Command)
@table_option
@click.option("--path", "folder", metavar="FOLDER", help="The folder of one table's index instead.")
@optional_policy_option
@json_option
@spark_options
def show_index(table: str | None, folder: str | None, policy: str | None, as_json: bool, launch: Launch) -> None:
    """Show an index: its version, table, size, objects, columns and keys.

    With --table also how fresh it is, by a listing of the table's files: how many of them are as indexed, changed, new
    or gone, and when the index was written; `index verify` compares footers too.

    FOLDER has a Parquet metadata store of version 1 to 4, by any writer.  Encrypted columns are read with the keys of
    --policy; a column whose key is denied is listed with that reason.

    Examples:
      sparkcrypt index show --table sales.customers --policy policy.yaml
      sparkcrypt index show --path indexes/customers
      sparkcrypt index show --path indexes/customers --policy policy.yaml --json
    """
    require_either(table, folder)
    if table is not None and policy is None:
        raise click.UsageError("--table needs --policy, which says where indexes are")
    with Workplace("sparkcrypt index", launch) as workplace:
        fresh = None
        if table is not None:
            loaded, spark = workplace.policy(str(policy)), workplace.spark
            from sparkcrypt.runs.table.table_index import open_table_index

            found = open_table_index(spark, table, loaded)
            folder, fresh = found.store.folder.uri, found.compare_listing()
        retrieve = policy_keys(workplace.policy(policy)) if policy else None
        try:
            listed = named_files(workplace, (str(folder),))
        except ConfigError as error:
            raise ConfigError(
                f"{folder}: no index is there; `sparkcrypt index create` makes one, and --path takes its folder"
            ) from error
        budget = Budget()
        parts = [read_part(file.path, file.open, retrieve_key=retrieve, budget=budget) for file in listed]
    store = merge_parts(parts)
    document, text = _document_of_store(str(folder), parts, store), _describe_store(str(folder), parts, store)
    if table is not None:
        document["freshness"] = None if fresh is None else fresh.to_dict()
        text += f"\n  {_describe_freshness(fresh)}"
    show(document, text, as_json=as_json)


def _document_of_store(folder: str, parts: Sequence[StorePart], store: Store | None) -> dict[str, Any]:
    files = [
        {
            "name": part.name,
            "bytes": part.size,
            "footer": part.footer.mode,
            "algorithm": part.footer.algorithm,
            "footer_key": summarise(part.footer).footer_key,
        }
        for part in parts
    ]
    if store is None:
        return {"path": folder, "files": files, **dict.fromkeys(_FIELDS)}
    labels = store.labels
    return {
        "path": folder,
        "files": files,
        "version": store.version,
        "table": store.table,
        "objects": _count_objects(parts),
        "repeated": store.repeated,
        "labels": None
        if labels is None
        else {"footer_key": labels.footer_key, "column_keys": labels.column_keys, "footer_mode": labels.footer_mode},
        "partitions": [{"column": column.column, "type": column.type} for column, _ in store.partitions],
        "indexes": [_index(entry, parts) for entry in store.indexes],
    }


def _index(entries: IndexEntries, parts: Sequence[StorePart]) -> dict[str, Any]:
    held = entries.index
    return {
        "columns": list(held.columns),
        "kind": held.kind,
        "type": held.column_type or held.type,
        "params": dict(held.params),
        "label": held.key,
        "keys": _keys(held.field, parts),
        "entries": None if entries.unused else sum(entry is not None for entry in entries.entries),
        "unused": entries.unused,
    }


def _keys(field: str, parts: Sequence[StorePart]) -> list[str | None]:
    """Return the master keys that encrypt a field in the files; None stands for plaintext or an unknown key."""
    summaries: list[FileSummary] = [summarise(part.footer) for part in parts]
    found = {
        (column.key_id if column.encrypted else None): None
        for summary in summaries
        for path, column in (summary.columns or {}).items()
        if path[0] == field
    }
    return list(found)


def _count_objects(parts: Sequence[StorePart]) -> int:
    return sum(group.num_rows for part in parts if part.footer.metadata for group in part.footer.metadata.row_groups)


def _describe_store(folder: str, parts: Sequence[StorePart], store: Store | None) -> str:
    total = sum(part.size for part in parts)
    states = list(dict.fromkeys(_state(part) for part in parts))
    lines = [f"{folder}: {count_of(len(parts), 'file')}, {size_of(total)}; footers {' and '.join(states)}"]
    if store is None:
        return "\n".join([*lines, "  what it holds is hidden; give --policy to see it"])
    table = "an unnamed table" if store.table is None else store.table
    objects = _count_objects(parts)
    lines.append(f"  version {store.version}, of {table}: {count_of(objects, 'object')}")
    if store.repeated:
        lines.append(f"  {count_of(store.repeated, 'object')} more than once: its writer was interrupted")
    if store.partitions:
        lines.append(f"  partitions: {', '.join(column.column for column, _ in store.partitions)}")
    if not store.indexes:
        return "\n".join([*lines, "  no index"])
    rows = [
        (
            entry["kind"],
            ", ".join(entry["columns"]),
            entry["type"],
            ", ".join(key or "not encrypted" for key in entry["keys"]) or None,
            "not used: " + entry["unused"] if entry["unused"] else f"{entry['entries']:,} of {objects:,}",
        )
        for entry in (_index(held, parts) for held in store.indexes)
    ]
    return "\n".join([*lines, align_table(rows, head=("index", "column", "type", "key", "objects"), indent="  ")])


def _state(part: StorePart) -> str:
    state, key = _FOOTERS[part.footer.mode], summarise(part.footer).footer_key
    return f"{state} under {key}" if key else state


def _describe_freshness(found: Freshness | None) -> str:
    """Return the freshness of an index as text."""
    if found is None:
        return "freshness unknown: there is no sidecar, or its key is denied; queries do not use this index then"
    counts = f"{count_of(found.indexed, 'file')} as indexed"
    if not found.is_fresh:
        counts += f", {found.changed:,} changed, {found.new:,} new, {found.gone:,} gone; `index refresh` follows them"
    return f"generation {found.generation}, written {found.written_at}; {counts}"


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
            from sparkcrypt.runs.table.table_index import drop_index

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
        from sparkcrypt.runs.table.table_index import open_table_index

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
