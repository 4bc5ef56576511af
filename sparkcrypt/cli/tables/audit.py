"""`sparkcrypt audit`: shows who changed which files of a table, verifies that record, and shows who read a column."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.known_runs import Authenticity, known_runs
from sparkcrypt.cli.frame.options import (
    Launch,
    is_typed,
    json_option,
    optional_policy_option,
    policy_option,
    spark_options,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.decide.access_log import AccessReport, Record, read_accesses
from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.audit import list_entries, verify_audit
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.state.mac import MasterKeys, has_mac_key, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.text import align_table, count_of

_HEAD = ("first", "last", "principal", "user", "what", "columns", "key", "keys", "application", "execution", "route")
_DIGEST_CHARACTERS = 12
_APP = "sparkcrypt audit"
_table = click.option("--table", required=True, metavar="DB.TABLE", help="A table, or the folder of a run with --path.")


def _day(context: click.Context, option: click.Parameter, value: str) -> date:
    try:
        return datetime.strptime(value, "%Y-%m-%d").date()
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a day; allowed: YYYY-MM-DD", context, option) from error


@click.command("access", cls=Command)
@click.option("--column", required=True, metavar="DB.TABLE.COLUMN", help="The column; with all that is below it.")
@click.option("--on", "day", required=True, metavar="YYYY-MM-DD", callback=_day, help="The day, in UTC.")
@optional_policy_option
@click.option(
    "--log", metavar="DIR", help="A folder with logs, such as those of all machines, in place of the policy's own."
)
@json_option
@click.pass_context
def audit_access(
    context: click.Context, column: str, day: date, policy: str | None, log: str | None, as_json: bool
) -> None:
    """Show who read a column on a day, and who was refused or got nulls, as it was recorded.

    The log is what readers' processes wrote. Lines that cannot be read and events that were lost are counted; the key
    service's own audit says which keys it unwrapped for whom.

    Examples:
      sparkcrypt audit access --column sales.customers.email --on 2026-11-23 --policy policy.yaml
      sparkcrypt audit access --column sales.customers.email --on 2026-11-23 --log /srv/access-logs --json
    """
    if (policy is None and log is None) or (is_typed(context, "policy") and log is not None):
        raise click.UsageError("give either --policy or --log")
    report = read_accesses(Path(log) if log is not None else _folder_of(policy or ""), column, day)
    show(report.to_dict(), _text(report), as_json=as_json)


def _folder_of(policy: str) -> Path:
    with Workplace("sparkcrypt audit", short=True) as workplace:
        rule = workplace.policy(policy).access_log
    if rule is None:
        raise ConfigError(f"policy {policy}: has no access_log, so nothing is recorded; add one, or give --log")
    return Path(rule.location)


def _text(report: AccessReport) -> str:
    rows = [_row_of_access(access) for access in report.accesses]
    head = (*_HEAD, "query")
    lines = [align_table(rows, head=head) if rows else f"{report.column}: no access is recorded on {report.day}"]
    lines.append(f"{count_of(report.files, 'file')} of {report.day} read")
    if report.lost:
        lines.append(f"warning: {count_of(report.lost, 'event')}, of any column, could not be recorded")
    if report.missing:
        missing = count_of(report.missing, "event")
        lines.append(
            f"warning: {missing}, of any column, between others of their processes: lost, removed or elsewhere"
        )
    if report.unreadable:
        lines.append(f"warning: {count_of(report.unreadable, 'line')} cannot be read:")
        lines.append(align_table([[place] for place in report.unreadable_at], indent="  "))
    return "\n".join(lines)


def _row_of_access(access: Record) -> tuple[object, ...]:
    why, digest = access["why"], access["query_digest"]
    columns = ", ".join(access["columns"]) or "the footer"
    return (
        *(access["time"], access["last"], access["principal"], access["session_user"]),
        *(f"{access['outcome']} ({why})" if why else access["outcome"], columns, access["key"], access["count"]),
        *(access["application"], access["execution"], access["route"], digest and str(digest)[:_DIGEST_CHARACTERS]),
    )


def _head(context: click.Context, option: click.Parameter, value: str | None) -> AuditHead | None:
    if value is None:
        return None
    head = AuditHead.from_text(value)
    if head is None:
        raise click.BadParameter(f"{value!r} is not NUMBER:DIGEST", context, option)
    return head


@click.group(cls=Group)
def audit() -> None:
    """Look at the audit of a table's runs, verify it, and see who read a column."""


@audit.command("show", cls=Command)
@_table
@policy_option
@json_option
def show_audit(table: str, policy: str, as_json: bool) -> None:
    """Show every entry of a table's audit, as it stands there, and whether it is authentic; `audit verify` checks all.

    Examples:
      sparkcrypt audit show --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP, short=True) as workplace:
        loaded = workplace.policy(policy)
        store = workplace.state_directory(loaded.run_state)
        authenticity = Authenticity(store, loaded)
        found = [entry for table_id in _ids(store, table) for entry in _entries(store, table_id, authenticity)]
    rows = [_row(entry) for entry in found]
    head = ("entry", "time", "who", "what", "unit", "files", "run")
    text = align_table(rows, head=head) if rows else f"{table}: no entries"
    show(found, "\n".join([text, *authenticity.lines()]), as_json=as_json)


@audit.command(cls=Command)
@_table
@policy_option
@click.option(
    "--head",
    metavar="NUMBER:DIGEST",
    callback=_head,
    help="A head that was kept elsewhere, such as the one of a report; the audit must hold it.",
)
@json_option
def verify(table: str, policy: str, head: AuditHead | None, as_json: bool) -> None:
    """Verify a table's audit: no entry was edited, dropped or moved, and a holder of its key wrote each.

    So are the journals of its runs, which are in the same log.  An end that was cut off is found only by a head that
    was kept elsewhere: keep the one that is printed, and give it as --head the next time.

    Examples:
      sparkcrypt audit verify --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP, short=True) as workplace:
        loaded = workplace.policy(policy)
        store = workplace.state_directory(loaded.run_state)
        service, masters = open_key_service(loaded.key_service), MasterKeys.of(loaded)
        found = [_verify_audit(store, table_id, service, masters, head) for table_id in _ids(store, table)]
    document = _document(table, [entry for entry in found if entry is not None], masters)
    weak = [f"warning: {text}" for text in document["warnings"]]
    entries = count_of(document["entries"], "entry")
    ends = [f"head {entry['number']}:{entry['digest']}" for entry in document["heads"]]
    show(document, "\n".join([f"{table}: {entries}, all authentic", *ends, *weak]), as_json=as_json)


@audit.command(cls=Command)
@click.option("--table", required=True, metavar="DB.TABLE", help="A table of the session catalog.")
@click.option("--reason", required=True, metavar="TEXT", help="Why newer records are given up, for the audit.")
@policy_option
@json_option
@spark_options
def accept(table: str, reason: str, policy: str, as_json: bool, launch: Launch) -> None:
    """Accept a state directory that lacks records of a table, where no copy that has them is left.

    The metastore has a pin of each swap, which names a record of its run.  While the state directory lacks that
    record, nothing is deleted or put back by it.  While it lacks a record that others follow, the audit cannot be
    verified.  This puts into the audit that these records are given up.  Runs of which one is lost stay as they are.

    Examples:
      sparkcrypt audit accept --table sales.customers --policy policy.yaml --reason "restored from a backup"
    """
    if not reason.strip():
        raise click.UsageError("the reason is empty; say why, for those who read the audit")
    with Workplace(_APP, launch, short=True) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.runs.old_folders.past_run import past_runs

        with past_runs(spark, table, loaded, "accept") as runs:
            pins, gaps = runs.give_up_lost(reason.strip())
    head = f"{table}: {count_of(len(pins), 'pin')} and {count_of(len(gaps), 'missing record')} accepted"
    text = "\n".join([head, *(f"  {pin.name}: {pin.why}" for pin in pins), *(f"  {gap}" for gap in gaps)])
    document = {"pins": [{"unit": pin.name, "pin": pin.text, "why": pin.why} for pin in pins], "records": gaps}
    show(document, text, as_json=as_json)


def _verify_audit(
    store: StateStore, table_id: str, service: KeyService, masters: MasterKeys, kept: AuditHead | None
) -> tuple[AuditHead, str, int] | None:
    """Verify an audit; return its head, the master key of its newest MAC key, and how many entries it has.

    Returns:
        None if there is no audit.
    """
    expected = [] if kept is None else [kept]
    if not has_mac_key(store, table_id):
        verify_audit(store, table_id, None, expected=expected)  # raises if an entry is expected
        return None
    mac = open_mac(store, table_id, service, masters)
    head = verify_audit(store, table_id, mac, expected=expected)
    count = sum(1 for _ in list_entries(store, table_id, mac))
    return None if head is None else (head, mac.key_ids[-1], count)


def _document(table: str, found: list[tuple[AuditHead, str, int]], masters: MasterKeys) -> dict[str, Any]:
    weak = [masters.weakness(key_id) for _, key_id, _ in found]
    return {
        "table": table,
        "entries": sum(count for _, _, count in found),
        "verified": True,
        "heads": [{**head.to_dict(), "key_id": key_id} for head, key_id, _ in found],
        "warnings": sorted({text for text in weak if text is not None}),
    }


def _ids(store: StateStore, table: str) -> list[str]:
    if "/" not in table and has_mac_key(store, table):
        return [table]  # a table's UUID, even if no journal with its name is left
    return list(dict.fromkeys(run.table_id for run in known_runs(store, table)))


def _entries(store: StateStore, table_id: str, authenticity: Authenticity) -> list[dict[str, Any]]:
    """Return a table's entries as JSON values, with whether each is authenticated."""
    entries = list(list_entries(store, table_id, None))
    authentic = authenticity.entries(table_id) if entries else frozenset()
    return [
        {
            **entry.entry,
            "table_id": table_id,
            "number": entry.number,
            "time": entry.time,
            "authenticated": entry.number in authentic,
        }
        for entry in entries
    ]


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    unit, why = entry.get("unit") or {}, entry.get("why") or {}
    who, what = entry.get("who"), entry.get("what")
    return entry["number"], entry["time"], who, what, unit.get("unit"), _files(entry), why.get("run_id")


def _files(entry: dict[str, Any]) -> str | None:
    """Return a text with the numbers of old and new files; None for an entry without changes."""
    changes = entry.get("changes") or []
    counts = [sum(len(change.get(side) or []) for change in changes) for side in ("sources", "targets")]
    return f"{counts[0]:,} became {counts[1]:,}" if changes else None
