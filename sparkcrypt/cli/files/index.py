"""`sparkcrypt index`: the group of its commands, and `index show`, which prints a store's content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from sparkcrypt.cli.files.index_frame import APP, StoreOptions, open_table
from sparkcrypt.cli.files.index_keep import create_index, refresh_index
from sparkcrypt.cli.files.index_place import find_known_store
from sparkcrypt.cli.files.index_text import COMPARED, describe_comparison, describe_freshness
from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.named_files import named_files, policy_keys
from sparkcrypt.cli.frame.options import (
    Launch,
    json_option,
    option,
    optional_policy_option,
    options_from,
    require_either,
    spark_options,
    table_option,
)
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.parquet import FileSummary, summarise
from sparkcrypt.skipping.format.decode_chunk import Budget
from sparkcrypt.skipping.format.merge import Store, merge_parts
from sparkcrypt.skipping.format.store import IndexEntries, StoreFile, StorePart, read_part
from sparkcrypt.skipping.indexes.compare import verify_store
from sparkcrypt.skipping.trusted.drop import drop_store
from sparkcrypt.text import count_of, size_of

_FOOTERS = {"encrypted": "encrypted", "plaintext_signed": "in clear, signed", "plaintext": "not encrypted"}


@click.group(cls=Group)
def index() -> None:
    """Stores for data skipping: what of a table's files a query need not open."""


@index.command("show", cls=Command)
@table_option
@click.option("--path", "folder", metavar="FOLDER", help="The folder of one table's store instead.")
@optional_policy_option
@json_option
@spark_options
def show_index(table: str | None, folder: str | None, policy: str | None, as_json: bool, launch: Launch) -> None:
    """Show what a store holds: its version, table, size, objects, indexes and keys.

    With --table also how true it still is, by a listing of the table's files: how many of them are as they were
    indexed, changed, new or gone, and when the store was written; `index verify` compares footers too.

    FOLDER holds a Parquet metadata store of version 1 to 4, by whichever writer.  What is encrypted is read with the
    keys of --policy; an index whose key is denied is listed with that reason.

    Examples:
      sparkcrypt index show --table sales.customers --policy policy.yaml
      sparkcrypt index show --path indexes/customers
      sparkcrypt index show --path indexes/customers --policy policy.yaml --json
    """
    require_either(table, folder)
    if table is not None and policy is None:
        raise click.UsageError("--table needs --policy, which says where stores are")
    with Workplace("sparkcrypt index", launch) as workplace:
        fresh = None
        if table is not None:
            found = open_table(workplace, table, str(policy))
            folder, fresh = found.store.folder.uri, found.compare_listing()
        retrieve = policy_keys(workplace.policy(policy)) if policy else None
        try:
            listed = named_files(workplace, (str(folder),))
        except ConfigError as error:
            raise ConfigError(
                f"{folder}: no store for data skipping is there; `sparkcrypt index create` makes one, and --path takes "
                "its folder"
            ) from error
        budget = Budget()
        parts = [read_part(StoreFile(file.path, file.open), retrieve_key=retrieve, budget=budget) for file in listed]
    store = merge_parts(parts)
    document, text = _document(str(folder), parts, store), _text(str(folder), parts, store)
    if table is not None:
        document["freshness"] = None if fresh is None else fresh.to_dict()
        text += f"\n  {describe_freshness(fresh)}"
    show(document, text, as_json=as_json)


def _document(folder: str, parts: Sequence[StorePart], store: Store | None) -> dict[str, Any]:
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
        "objects": _objects(parts),
        "repeated": store.repeated,
        "labels": None
        if labels is None
        else {"footer_key": labels.footer_key, "column_keys": labels.column_keys, "footer_mode": labels.footer_mode},
        "partitions": [{"column": column.column, "type": column.type} for column, _ in store.partitions],
        "indexes": [_index(entry, parts) for entry in store.indexes],
    }


_FIELDS = ("version", "table", "objects", "repeated", "labels", "partitions", "indexes")


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


def _objects(parts: Sequence[StorePart]) -> int:
    return sum(group.num_rows for part in parts if part.footer.metadata for group in part.footer.metadata.row_groups)


def _text(folder: str, parts: Sequence[StorePart], store: Store | None) -> str:
    total = sum(part.size for part in parts)
    states = list(dict.fromkeys(_state(part) for part in parts))
    lines = [f"{folder}: {count_of(len(parts), 'file')}, {size_of(total)}; footers {' and '.join(states)}"]
    if store is None:
        return "\n".join([*lines, "  what it holds is hidden; give --policy to see it"])
    table = "an unnamed table" if store.table is None else store.table
    objects = _objects(parts)
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


@dataclass(frozen=True, kw_only=True)
class DropOptions(StoreOptions):
    """The options of `sparkcrypt index drop`."""

    uuid: str | None = option("The UUID of a table that is gone, as `backfill orphans` tells it.", metavar="UUID")


@click.command("drop", cls=Command)
@options_from(DropOptions)
def drop_index(options: DropOptions) -> None:
    """Delete a table's store: its own files and nothing else, once nobody writes it and no table is there.

    With --table and --uuid the metastore is asked which tables lie at, in or above its folder, and with --path the
    policy alone; a folder with other files is refused.

    Examples:
      sparkcrypt index drop --table sales.flights --policy policy.yaml
      sparkcrypt index drop --path warehouse/flights --policy policy.yaml
    """
    table, path, uuid = options.table, options.path, options.uuid
    if uuid is None:
        options.check()
    elif table or path or options.to:
        raise click.UsageError("--uuid names a store by itself; leave --table, --path and --to out")
    with Workplace(APP, options.launch) as workplace:
        if path is not None:
            store = find_known_store(workplace, path, options.to, options.policy)
            uri, record = store.folder.uri, store.record
            deleted = drop_store(
                store.folder, store.uuid, store.desk.user_of, lambda generation: record.keep(generation + 1)
            )
        else:
            uri, deleted = _drop_by_metastore(workplace, table, uuid, options.policy)
    named = {name: value for name, value in (("table", table), ("path", path), ("uuid", uuid)) if value is not None}
    document = {**named, "store": uri, "deleted": list(deleted)}
    show(document, f"{uri}: dropped, {count_of(len(deleted), 'file')}", as_json=options.as_json)


def _drop_by_metastore(
    workplace: Workplace, table: str | None, uuid: str | None, policy: str
) -> tuple[str, tuple[str, ...]]:
    loaded, spark = workplace.policy(policy), workplace.spark
    from sparkcrypt.runs.index.table_index import drop_index as drop

    named = uuid if table is None else open_table(workplace, table, policy).store.uuid
    return drop(spark, loaded, str(named))


@click.command("verify", cls=Command)
@options_from(StoreOptions)
def verify_index(options: StoreOptions) -> None:
    """Hold a table's store against its files: names, times, lengths and the keyed digests of their footers.

    Files that are new or changed are told, and are in order: queries open them.  A file with the name, time and length
    of the one that was indexed and another footer ends with 74: queries would leave out rows of its.

    Examples:
      sparkcrypt index verify --table sales.flights --policy policy.yaml
      sparkcrypt index verify --path warehouse/flights --policy policy.yaml
    """
    options.check()
    with Workplace(APP, options.launch) as workplace:
        if options.table is not None:
            index = open_table(workplace, options.table, options.policy)
            named, uri = {"table": index.table.full_name}, index.store.folder.uri
            generation, found = index.verify()
        else:
            store = find_known_store(workplace, str(options.path), options.to, options.policy)
            named, uri = {"path": str(options.path)}, store.folder.uri
            opened = store.open(store.record.read())
            generation, found = opened.sidecar.generation, verify_store(store.desk.data, opened)
    document = {
        **named,
        "store": uri,
        "generation": generation,
        "fresh": found.is_fresh,
        "same": found.same,
        **{kind: list(getattr(found, kind)) for kind in COMPARED},
    }
    show(document, describe_comparison(uri, generation, found), as_json=options.as_json)
    if found.altered:
        raise VerificationError(
            f"{found.altered[0]}: has the name, time and length of the file that was indexed, and another footer"
            f"{f', as have {len(found.altered) - 1} others' if len(found.altered) > 1 else ''}; find out who wrote it, "
            "then make the store anew with `sparkcrypt index create`"
        )


for _command in (create_index, refresh_index, verify_index, drop_index):
    index.add_command(_command)
