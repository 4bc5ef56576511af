"""`sparkcrypt index drop`: deletes a store, also that of a table that no longer exists."""

from __future__ import annotations

import click

from sparkcrypt.cli.files.index_frame import APP, check_names, open_table, store_options
from sparkcrypt.cli.files.index_place import find_known_store
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch
from sparkcrypt.cli.frame.output import show
from sparkcrypt.skipping.trusted.drop import drop_store
from sparkcrypt.text import count_of


@click.command("drop", cls=Command)
@store_options
@click.option("--uuid", metavar="UUID", help="The UUID of a table that is gone, as `backfill orphans` tells it.")
def drop_index(
    table: str | None,
    path: str | None,
    to: str | None,
    policy: str,
    as_json: bool,
    launch: Launch,
    uuid: str | None,
) -> None:
    """Delete a table's store: its own files and nothing else, once nobody writes it and no table is there.

    With --table and --uuid the metastore is asked which tables lie at, in or above its folder, and with --path the
    policy alone; a folder with other files is refused.

    Examples:
      sparkcrypt index drop --table sales.flights --policy policy.yaml
      sparkcrypt index drop --path warehouse/flights --policy policy.yaml
    """
    if uuid is None:
        check_names(table, path, to)
    elif table or path or to:
        raise click.UsageError("--uuid names a store by itself; leave --table, --path and --to out")
    with Workplace(APP, launch) as workplace:
        if path is not None:
            store = find_known_store(workplace, path, to, policy)
            uri, record = store.folder.uri, store.record
            deleted = drop_store(
                store.folder, store.uuid, store.desk.user_of, lambda generation: record.keep(generation + 1)
            )
        else:
            uri, deleted = _drop_by_metastore(workplace, table, uuid, policy)
    named = {name: value for name, value in (("table", table), ("path", path), ("uuid", uuid)) if value is not None}
    document = {**named, "store": uri, "deleted": list(deleted)}
    show(document, f"{uri}: dropped, {count_of(len(deleted), 'file')}", as_json=as_json)


def _drop_by_metastore(
    workplace: Workplace, table: str | None, uuid: str | None, policy: str
) -> tuple[str, tuple[str, ...]]:
    loaded, spark = workplace.policy(policy), workplace.spark
    from sparkcrypt.backfill.index.table_index import drop_index as drop

    named = uuid if table is None else open_table(workplace, table, policy).store.uuid
    return drop(spark, loaded, str(named))
