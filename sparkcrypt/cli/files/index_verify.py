"""`sparkcrypt index verify`: verifies a table's store against its files."""

from __future__ import annotations

import click

from sparkcrypt.cli.files.index_frame import APP, check_names, open_table, store_options
from sparkcrypt.cli.files.index_place import find_known_store
from sparkcrypt.cli.files.index_text import COMPARED, describe_comparison
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch
from sparkcrypt.cli.frame.output import show
from sparkcrypt.errors import VerificationError
from sparkcrypt.skipping.keep.verify import verify_store


@click.command("verify", cls=Command)
@store_options
def verify_index(
    table: str | None, path: str | None, to: str | None, policy: str, as_json: bool, launch: Launch
) -> None:
    """Hold a table's store against its files: names, times, lengths and the keyed digests of their footers.

    Files that are new or changed are told, and are in order: queries open them.  A file with the name, time and length
    of the one that was indexed and another footer ends with 74: queries would leave out rows of its.

    Examples:
      sparkcrypt index verify --table sales.flights --policy policy.yaml
      sparkcrypt index verify --path warehouse/flights --policy policy.yaml
    """
    check_names(table, path, to)
    with Workplace(APP, launch) as workplace:
        if table is not None:
            index = open_table(workplace, table, policy)
            named, uri = {"table": index.table.full_name}, index.store.folder.uri
            generation, found = index.verify()
        else:
            store = find_known_store(workplace, str(path), to, policy)
            named, uri = {"path": str(path)}, store.folder.uri
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
    show(document, describe_comparison(uri, generation, found), as_json=as_json)
    if found.altered:
        raise VerificationError(
            f"{found.altered[0]}: has the name, time and length of the file that was indexed, and another footer"
            f"{f', as have {len(found.altered) - 1} others' if len(found.altered) > 1 else ''}; find out who wrote it, "
            "then make the store anew with `sparkcrypt index create`"
        )
