"""`sparkcrypt index show`: prints the content of an index, and how fresh a table's is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.named_files import named_files, policy_keys
from sparkcrypt.cli.frame.options import (
    Launch,
    json_option,
    optional_policy_option,
    require_either,
    spark_options,
    table_option,
)
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.errors import ConfigError
from sparkcrypt.files.parquet import FileSummary, summarise
from sparkcrypt.skipping.format.decode_chunk import Budget
from sparkcrypt.skipping.format.store import IndexEntries, Store, StoreFile, StorePart, merge_parts, read_part
from sparkcrypt.skipping.indexes.indexed import Freshness
from sparkcrypt.text import count_of, size_of

_FOOTERS = {"encrypted": "encrypted", "plaintext_signed": "in clear, signed", "plaintext": "not encrypted"}


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
            from sparkcrypt.runs.index.table_index import open_table_index

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
        parts = [read_part(StoreFile(file.path, file.open), retrieve_key=retrieve, budget=budget) for file in listed]
    store = merge_parts(parts)
    document, text = _document(str(folder), parts, store), _text(str(folder), parts, store)
    if table is not None:
        document["freshness"] = None if fresh is None else fresh.to_dict()
        text += f"\n  {_describe_freshness(fresh)}"
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


def _describe_freshness(found: Freshness | None) -> str:
    """Return the freshness of an index as text."""
    if found is None:
        return "freshness unknown: there is no sidecar, or its key is denied; queries do not use this index then"
    counts = f"{count_of(found.indexed, 'file')} as indexed"
    if not found.is_fresh:
        counts += f", {found.changed:,} changed, {found.new:,} new, {found.gone:,} gone; `index refresh` follows them"
    return f"generation {found.generation}, written {found.written_at}; {counts}"
