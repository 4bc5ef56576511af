"""`sparkcrypt audit access`: shows who read a column on a day and who was refused, by the log of access events."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import json_option, optional_policy_option
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.decide.access.log import Record
from sparkcrypt.decide.access.read import AccessReport, read_accesses
from sparkcrypt.errors import ConfigError
from sparkcrypt.text import count_of

_HEAD = ("first", "last", "principal", "user", "what", "columns", "key", "keys", "application", "execution", "route")
_DIGEST_CHARACTERS = 12


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
def audit_access(column: str, day: date, policy: str | None, log: str | None, as_json: bool) -> None:
    """Show who read a column on a day, and who was refused or got nulls, as it was recorded.

    The log is what readers' processes wrote. Lines that cannot be read and events that were lost are counted; the key
    service's own audit says which keys it unwrapped for whom.

    Examples:
      sparkcrypt audit access --column sales.customers.email --on 2026-11-23 --policy policy.yaml
      sparkcrypt audit access --column sales.customers.email --on 2026-11-23 --log /srv/access-logs --json
    """
    if (policy is None) == (log is None):
        raise click.UsageError("give either --policy or --log")
    report = read_accesses(Path(log) if log is not None else _folder_of(policy or ""), column, day)
    show(report.to_dict(), _text(report), as_json=as_json)


def _folder_of(policy: str) -> Path:
    with Workplace("sparkcrypt audit") as workplace:
        rule = workplace.policy(policy).access_log
    if rule is None:
        raise ConfigError(f"policy {policy}: has no access_log, so nothing is recorded; add one, or give --log")
    return Path(rule.location)


def _text(report: AccessReport) -> str:
    rows = [_row(access) for access in report.accesses]
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


def _row(access: Record) -> tuple[object, ...]:
    why, digest = access["why"], access["query_digest"]
    columns = ", ".join(access["columns"]) or "the footer"
    return (
        *(access["time"], access["last"], access["principal"], access["session_user"]),
        *(f"{access['outcome']} ({why})" if why else access["outcome"], columns, access["key"], access["count"]),
        *(access["application"], access["execution"], access["route"], digest and str(digest)[:_DIGEST_CHARACTERS]),
    )
