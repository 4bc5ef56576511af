"""`sparkcrypt index create | refresh | verify | drop`: the store of one table made, kept, checked and removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sparkcrypt.cli.files.index_place import open_desk, open_known_store
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import json_option, policy_option
from sparkcrypt.cli.frame.output import show
from sparkcrypt.errors import VerificationError
from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.keep.create import Built, Wanted, create_store, plan_store
from sparkcrypt.skipping.keep.gatherers import (
    FILTER_SHARE,
    LIST_VALUES,
    MAX_FILTER_SHARE,
    MAX_LIST_VALUES,
    MIN_FILTER_SHARE,
)
from sparkcrypt.skipping.keep.refresh import refresh_store
from sparkcrypt.skipping.keep.verify import Comparison, compare_files
from sparkcrypt.skipping.trusted.drop import drop_store
from sparkcrypt.text import count_of

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN = 20
_KINDS_OF_INDEXES = {"minmax": MINMAX, "values": VALUES, "bloom": BLOOM}


def _store_options(function: F) -> F:
    options = (
        click.option("--path", required=True, metavar="FOLDER", help="The table's files: a path, or webhdfs://…"),
        click.option(
            "--to",
            "--store",
            "to",
            metavar="STORE",
            help="The store's own folder, outside of the files'; by default the table's below index.location of the "
            "policy.",
        ),
        policy_option,
        json_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("create", cls=Command)
@_store_options
@click.option(
    "--column",
    "columns",
    multiple=True,
    required=True,
    metavar="COL[:KIND…]",
    help="A column and the kinds of its indexes: minmax (bounds, the default), values or bloom; may be repeated.",
)
@click.option(
    "--most-values",
    type=click.IntRange(1, MAX_LIST_VALUES),
    default=LIST_VALUES,
    show_default=True,
    metavar="NUMBER",
    help="How many distinct values of a file its list has at most; the list of a file with more is unknown.",
)
@click.option(
    "--false-positives",
    type=click.FloatRange(MIN_FILTER_SHARE, MAX_FILTER_SHARE),
    default=FILTER_SHARE,
    show_default=True,
    metavar="SHARE",
    help="The share of other values that a Bloom filter may take for one of its own.",
)
@click.option(
    "--partition", "types", multiple=True, metavar="COL=TYPE", help="The type of a partition column that is no string."
)
@click.option(
    "--value", "given", multiple=True, metavar="COL=VALUE", help="A partition value of all files that no folder tells."
)
def create_index(
    path: str,
    to: str | None,
    policy: str,
    as_json: bool,
    columns: tuple[str, ...],
    most_values: int,
    false_positives: float,
    types: tuple[str, ...],
    given: tuple[str, ...],
) -> None:
    """Write a store over a table's files: bounds of columns, lists of their values, or Bloom filters.

    Bounds come from footers alone; for values and bloom the pages of that column are read.  A file whose bounds or
    values are unknown is opened by every query.  Where a column's own name ends as a kind, two colons follow it.

    A column's index is encrypted with the key that the files encrypt the column with, everything else with the footer's
    key.  Folders named column=value make partition columns.  Files that changed less than two seconds ago are left out.
    A store that is there already is replaced.

    Examples:
      sparkcrypt index create --path warehouse/flights --column id --policy policy.yaml
      sparkcrypt index create --path warehouse/flights --column email:bloom --column city:values:minmax \
--policy policy.yaml
      sparkcrypt index create --path warehouse/flights --to indexes/flights --column id --partition day=date \
--policy policy.yaml
    """
    kinds = _read_kinds(columns)
    wanted = Wanted(
        tuple(kinds),
        _read_pairs("--partition", types),
        _read_pairs("--value", given),
        kinds,
        most_values,
        false_positives,
    )
    with Workplace("sparkcrypt index") as workplace:
        desk = open_desk(workplace, path, to, policy)
        if to is not None:
            desk.folder(None)
        plan = plan_store(desk.data, wanted)
        folder, record = desk.folder(plan.table_uuid), desk.generation(plan.table_uuid)
        keys = desk.keys({name: column.key for name, column in plan.columns.items() if column.key is not None})
        built = create_store(folder, plan, keys, generation=record.read())
        record.keep(built.sidecar.generation)
    _show_built(path, folder.uri, built, as_json)


@click.command("refresh", cls=Command)
@_store_options
def refresh_index(path: str, to: str | None, policy: str, as_json: bool) -> None:
    """Bring a table's store up to date: new and changed files are read, all else is carried over.

    A file is the one that was indexed if its path, time of change and length are.  Where nothing changed, nothing is
    written.

    Examples:
      sparkcrypt index refresh --path warehouse/flights --policy policy.yaml
    """
    with open_known_store(path, to, policy) as store:
        known = store.record.read()
        opened = store.open(known)
        built = refresh_store(store.folder, store.desk.data, opened, store.desk.keys_of(opened), generation=known)
        store.record.keep(built.sidecar.generation)
    _show_built(path, store.folder.uri, built, as_json)


@click.command("verify", cls=Command)
@_store_options
def verify_index(path: str, to: str | None, policy: str, as_json: bool) -> None:
    """Hold a table's store against its files: names, times, lengths and the keyed digests of their footers.

    Files that are new or changed are told, and are in order: queries open them.  A file with the name, time and length
    of the one that was indexed and another footer ends with 74: queries would leave out rows of its.

    Examples:
      sparkcrypt index verify --path warehouse/flights --policy policy.yaml
    """
    with open_known_store(path, to, policy) as store:
        opened = store.open(store.record.read())
        found = compare_files(store.desk.data, opened.sidecar)
    document = {
        "path": path,
        "store": store.folder.uri,
        "generation": opened.sidecar.generation,
        "fresh": found.is_fresh,
        "same": found.same,
        **{kind: list(getattr(found, kind)) for kind in _KINDS},
    }
    show(document, _describe_comparison(store.folder.uri, opened.sidecar.generation, found), as_json=as_json)
    if found.altered:
        raise VerificationError(
            f"{found.altered[0]}: has the name, time and length of the file that was indexed, and another footer"
            f"{f', as have {len(found.altered) - 1} others' if len(found.altered) > 1 else ''}; find out who wrote it, "
            "then make the store anew with `sparkcrypt index create`"
        )


@click.command("drop", cls=Command)
@_store_options
def drop_index(path: str, to: str | None, policy: str, as_json: bool) -> None:
    """Delete a table's store: its own files and nothing else, once nobody writes it and no table is there.

    The policy is asked which tables lie at, in or above its folder; a folder with other files is refused.

    Examples:
      sparkcrypt index drop --path warehouse/flights --policy policy.yaml
    """
    with open_known_store(path, to, policy) as store:
        deleted = drop_store(
            store.folder, store.uuid, store.desk.user_of, lambda generation: store.record.keep(generation + 1)
        )
    document = {"path": path, "store": store.folder.uri, "deleted": list(deleted)}
    show(document, f"{store.folder.uri}: dropped, {count_of(len(deleted), 'file')}", as_json=as_json)


_KINDS = {
    "altered": "with another footer than was indexed",
    "changed": "of another length than was indexed",
    "new": "not indexed yet",
    "gone": "indexed, and gone since",
}


def _describe_comparison(store: str, generation: int, found: Comparison) -> str:
    lines = [f"{store}: generation {generation}, {count_of(found.same, 'file')} as indexed"]
    for kind, what in _KINDS.items():
        names = getattr(found, kind)
        if names:
            lines.append(f"  {count_of(len(names), 'file')} {what}:")
            lines += [f"    {name}" for name in names[:_SHOWN]]
            if len(names) > _SHOWN:
                lines.append(f"    and {len(names) - _SHOWN:,} more; --json lists all")
    return "\n".join(lines)


_UNKNOWN = {
    MINMAX: ("unknown", "bounds"),
    VALUES: ("unknown_values", "values"),
    BLOOM: ("unknown_filters", "Bloom filter"),
}
"""Kind of index -> the field that says of which files it is unknown, and what people read."""


def _show_built(path: str, store: str, built: Built, as_json: bool) -> None:
    objects = len(built.sidecar.objects)
    document = {
        "path": path,
        "store": store,
        "generation": built.sidecar.generation,
        "table_uuid": built.sidecar.table_uuid,
        "objects": objects,
        "read": built.read,
        "written": built.written,
        "left_out": list(built.left_out),
        **{
            key: {column: dict(reasons) for (column, of), reasons in built.unknown.items() if of == kind}
            for kind, (key, _) in _UNKNOWN.items()
        },
    }
    state = f"{count_of(built.read, 'file')} read" if built.written else "nothing has changed"
    lines = [f"{store}: generation {built.sidecar.generation}, {count_of(objects, 'object')}, {state}"]
    if built.left_out:
        lines.append(f"  left out, since they were changed a moment ago: {count_of(len(built.left_out), 'file')}")
    for (column, kind), reasons in built.unknown.items():
        what = f"  {column}: {_UNKNOWN[kind][1]} unknown of"
        lines += [f"{what} {count_of(number, 'file')}: {why}" for why, number in reasons.items()]
    show(document, "\n".join(lines), as_json=as_json)


def _read_kinds(values: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return column -> the kinds of its indexes; a column that is named twice has those of both."""
    found: dict[str, dict[str, None]] = {}
    for value in values:
        column, kinds = value, dict[str, None]()
        while (parts := column.rpartition(":"))[0] and parts[2] in _KINDS_OF_INDEXES:
            column, kinds = parts[0], {_KINDS_OF_INDEXES[parts[2]]: None, **kinds}
        if kinds:
            column = column.removesuffix(":")  # which parts a name that ends as a kind from what follows it
        found.setdefault(column, {}).update(kinds or {MINMAX: None})
    return {column: tuple(kinds) for column, kinds in found.items()}


def _read_pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name or name in found:
            raise click.UsageError(f"{option} {value}: is not COL=TEXT, or names a column twice")
        found[name] = rest
    return found
