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
from sparkcrypt.skipping.keep.create import Built, Wanted, create_store, plan_store
from sparkcrypt.skipping.keep.refresh import refresh_store
from sparkcrypt.skipping.keep.verify import Comparison, compare_files
from sparkcrypt.skipping.trusted.drop import drop_store
from sparkcrypt.text import count_of

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN = 20


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
@click.option("--column", "columns", multiple=True, required=True, metavar="COL", help="A column; may be repeated.")
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
    types: tuple[str, ...],
    given: tuple[str, ...],
) -> None:
    """Write a store with the bounds of columns over a table's files, from their footers alone.

    A column's index is encrypted with the key that the files encrypt the column with, everything else with the footer's
    key.  Folders named column=value make partition columns.  Files that changed less than two seconds ago are left out.
    A store that is there already is replaced.

    Examples:
      sparkcrypt index create --path warehouse/flights --column id --policy policy.yaml
      sparkcrypt index create --path warehouse/flights --to indexes/flights --column id --partition day=date \
--policy policy.yaml
    """
    wanted = Wanted(tuple(dict.fromkeys(columns)), _read_pairs("--partition", types), _read_pairs("--value", given))
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
        "unknown": {column: dict(reasons) for column, reasons in built.unknown.items()},
    }
    state = f"{count_of(built.read, 'file')} read" if built.written else "nothing has changed"
    lines = [f"{store}: generation {built.sidecar.generation}, {count_of(objects, 'object')}, {state}"]
    if built.left_out:
        lines.append(f"  left out, since they were changed a moment ago: {count_of(len(built.left_out), 'file')}")
    for column, reasons in built.unknown.items():
        lines += [f"  {column}: bounds unknown of {count_of(number, 'file')}: {why}" for why, number in reasons.items()]
    show(document, "\n".join(lines), as_json=as_json)


def _read_pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name or name in found:
            raise click.UsageError(f"{option} {value}: is not COL=TEXT, or names a column twice")
        found[name] = rest
    return found
