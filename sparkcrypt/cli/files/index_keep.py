"""`sparkcrypt index create | refresh`: creates and refreshes the store of one table."""

from __future__ import annotations

from dataclasses import dataclass

import click

from sparkcrypt.cli.files.index_frame import StoreOptions, open_table, reporting
from sparkcrypt.cli.files.index_place import find_known_store, open_desk
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.options import option, options_from, report_option, use
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.runs.index.reading_progress import ToldReader
from sparkcrypt.skipping.indexes.build import Wanted, create_store, plan_store, read_kinds, refresh_store
from sparkcrypt.skipping.indexes.files import RowReader, read_rows
from sparkcrypt.skipping.indexes.gatherers import (
    FILTER_SHARE,
    LIST_VALUES,
    MAX_FILTER_SHARE,
    MAX_LIST_VALUES,
    MIN_FILTER_SHARE,
)

_WORK = "index"


@dataclass(frozen=True, kw_only=True)
class RefreshOptions(StoreOptions):
    """The options of `sparkcrypt index refresh`."""

    report: str | None = use(report_option)


@dataclass(frozen=True, kw_only=True)
class CreateOptions(RefreshOptions):
    """The options of `sparkcrypt index create`."""

    columns: tuple[str, ...] = option(
        "A column and the kinds of its indexes: minmax (bounds, the default), values or bloom; may be repeated.",
        "--column",
        required=True,
        metavar="COL[:KIND…]",
    )
    most_values: int = option(
        "How many distinct values of a file its list has at most; the list of a file with more is unknown.",
        type=click.IntRange(1, MAX_LIST_VALUES),
        default=LIST_VALUES,
        show_default=True,
        metavar="NUMBER",
    )
    false_positives: float = option(
        "The share of other values that a Bloom filter may take for one of its own.",
        type=click.FloatRange(MIN_FILTER_SHARE, MAX_FILTER_SHARE),
        default=FILTER_SHARE,
        show_default=True,
        metavar="SHARE",
    )
    types: tuple[str, ...] = option(
        "With --path: the type of a partition column that is no string.", "--partition", metavar="COL=TYPE"
    )
    values: tuple[str, ...] = option(
        "With --path: a partition value of all files that no folder tells.", "--value", metavar="COL=VALUE"
    )


@click.command("create", cls=Command)
@options_from(CreateOptions)
def create_index(options: CreateOptions) -> None:
    """Write a store over a table's files: bounds of columns, lists of their values, or Bloom filters.

    Bounds come from footers alone; for values and bloom the pages of that column are read.  A file whose bounds or
    values are unknown is opened by every query.  Where a column's own name ends as a kind, two colons follow it.

    With --table folders, partitions and types are those of the catalog, and a column's index is encrypted with the key
    that the table's plan gives it; a column whose tag gives it a key for each partition is refused.  With --path the
    key is that with which the files encrypt the column, and folders named column=value make partition columns.
    Everything else is encrypted with the footer's key.  Files that changed less than two seconds ago are left out.  A
    store that is there already is replaced.

    Examples:
      sparkcrypt index create --table sales.flights --column id --column email:bloom --policy policy.yaml
      sparkcrypt index create --path warehouse/flights --column email:bloom --column city:values:minmax \
--policy policy.yaml
      sparkcrypt index create --path warehouse/flights --to indexes/flights --column id --partition day=date \
--policy policy.yaml
    """
    options.check()
    table, path, policy = options.table, options.path, options.policy
    if table is not None and (options.types or options.values):
        raise click.UsageError("--partition and --value go with --path; a table's are those of the catalog")
    kinds = read_kinds(options.columns)
    with reporting(options.report, table or path, options.launch) as (workplace, built_at):
        if table is not None:
            found = open_table(workplace, table, policy)
            progress = progress_on_stderr(_WORK)
            built = found.create(
                kinds, most_values=options.most_values, share=options.false_positives, progress=progress
            )
            built_at(found.store.folder.uri, built, table=found.table.full_name)
        else:
            desk = open_desk(workplace, str(path), options.to, policy)
            if options.to is not None:
                desk.folder(None)
            pairs = _read_pairs("--partition", options.types), _read_pairs("--value", options.values)
            wanted = Wanted(tuple(kinds), *pairs, kinds, options.most_values, options.false_positives)
            plan = plan_store(desk.data, wanted)
            folder, record = desk.folder(plan.table_uuid), desk.generation(plan.table_uuid)
            keys = desk.keys({name: column.key for name, column in plan.columns.items() if column.key is not None})
            built = create_store(folder, plan, keys, generation=record.read(), read=_make_reader(str(path)))
            record.keep(built.sidecar.generation)
            built_at(folder.uri, built, path=path)
    built_at.show(as_json=options.as_json)


@click.command("refresh", cls=Command)
@options_from(RefreshOptions)
def refresh_index(options: RefreshOptions) -> None:
    """Bring a table's store up to date: new and changed files are read, all else is carried over.

    A file is the one that was indexed if its path, time of change and length are.  With --table each index is encrypted
    with the key that its column has now.  Where nothing changed, nothing is written.

    Examples:
      sparkcrypt index refresh --table sales.flights --policy policy.yaml
      sparkcrypt index refresh --path warehouse/flights --policy policy.yaml
    """
    options.check()
    table, path, policy = options.table, options.path, options.policy
    with reporting(options.report, table or path, options.launch) as (workplace, built_at):
        if table is not None:
            found = open_table(workplace, table, policy)
            built_at(found.store.folder.uri, found.refresh(progress_on_stderr(_WORK)), table=found.table.full_name)
        else:
            store = find_known_store(workplace, str(path), options.to, policy)
            generation = store.record.read()
            opened = store.open(generation)
            keys, read = store.desk.keys_of(opened), _make_reader(str(path))
            built = refresh_store(store.folder, store.desk.data, opened, keys, generation=generation, read=read)
            store.record.keep(built.sidecar.generation)
            built_at(store.folder.uri, built, path=path)
    built_at.show(as_json=options.as_json)


def _make_reader(path: str) -> RowReader:
    return ToldReader(read_rows, path, progress_on_stderr(_WORK))


def _read_pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name or name in found:
            raise click.UsageError(f"{option} {value}: is not COL=TEXT, or names a column twice")
        found[name] = rest
    return found
