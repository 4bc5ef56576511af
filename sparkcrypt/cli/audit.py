"""`sparkcrypt audit`: who changed which files of a table, when and why, and whether that record is whole."""

from __future__ import annotations

from typing import Any

import click

from sparkcrypt.backfill.audit import audit_entries, key_service_mac, verify_audit
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.cli.command import Command, Group
from sparkcrypt.cli.options import json_option, policy_option
from sparkcrypt.cli.output import aligned, counted, show
from sparkcrypt.cli.runs import known_runs
from sparkcrypt.cli.session import Workplace
from sparkcrypt.keys.service import open_key_service

_APP = "sparkcrypt audit"
_table = click.option(
    "--table", required=True, metavar="DB.TABLE", help="A table, or the directory of a run with --path."
)


@click.group(cls=Group)
def audit() -> None:
    """Look at the audit of a table's runs, and verify it."""


@audit.command("show", cls=Command)
@_table
@policy_option
@json_option
def show_audit(table: str, policy: str, as_json: bool) -> None:
    """Show every entry of a table's audit, as it stands there; `audit verify` checks it.

    Examples:
      sparkcrypt audit show --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        store = workplace.states(workplace.policy(policy).run_state)
        found = [entry for table_id in _ids(store, table) for entry in _entries(store, table_id)]
    rows = [_row(one) for one in found]
    head = ("entry", "time", "who", "what", "unit", "run")
    show(found, aligned(rows, head=head) if rows else f"{table}: no entries", as_json=as_json)


@audit.command(cls=Command)
@_table
@policy_option
@json_option
def verify(table: str, policy: str, as_json: bool) -> None:
    """Verify a table's audit: no entry was edited, dropped or moved; a holder of the footer key wrote each.

    Keep the number of entries elsewhere: who can delete an end of the audit with its heads removes it unseen.

    Examples:
      sparkcrypt audit verify --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        loaded = workplace.policy(policy)
        store = workplace.states(loaded.run_state)
        service, earlier = open_key_service(loaded.key_service), loaded.footer_key_history
        sign = key_service_mac(service, loaded.footer_key, accepted=earlier)
        entries = 0
        for table_id in _ids(store, table):
            if store.list(f"audit/{table_id}/"):
                entries += verify_audit(store, table_id, check_mac=sign(store, table_id).check)
    document = {"table": table, "entries": entries, "verified": True}
    show(document, f"{table}: {counted(entries, 'entry').replace('entrys', 'entries')}, all authentic", as_json=as_json)


def _ids(store: StateStore, table: str) -> list[str]:
    return list(dict.fromkeys(one.table_id for one in known_runs(store, table)))


def _entries(store: StateStore, table_id: str) -> list[dict[str, Any]]:
    """Read a table's entries without checking them."""
    return [
        {**one.entry, "table_id": table_id, "number": one.number, "time": one.time}
        for one in audit_entries(store, table_id)
    ]


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    unit, why = entry.get("unit") or {}, entry.get("why") or {}
    return entry["number"], entry["time"], entry.get("who"), entry.get("what"), unit.get("unit"), why.get("run_id")
