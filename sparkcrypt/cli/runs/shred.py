"""`sparkcrypt shred plan|apply`, and the job `jobs/shred_keys.py`: master keys of data past retention are deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

import click

from sparkcrypt.backfill.journal.entries import AuditHead
from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch, databases_option, json_option, policy_option, spark_options
from sparkcrypt.cli.frame.output import show

F = TypeVar("F", bound=Callable[..., Any])
_NO_HEAD = "none"


@click.group(cls=Group)
def shred() -> None:
    """Delete master keys of data past their retention, so that nobody can ever read these again.

    A key of a template (`contact-{ingest_date:%Y-%m}`) of a tag with `retention` is due when the last day of its bucket
    is longer ago than that, in UTC.
    """


def _choice_options(function: F) -> F:
    """Add what chooses keys."""
    options = (
        click.option("--table", "tables", multiple=True, metavar="PATTERN", help="A table, or a pattern of names."),
        databases_option,
        click.option("--key", "key_id", metavar="KEY_ID", help="This key alone, such as a tenant's."),
        click.option(
            "--leave-out",
            multiple=True,
            metavar="TABLE",
            help="Do not ask of this table: it was dropped.",
        ),
        click.option(
            "--head",
            metavar="NUMBER:DIGEST|none",
            callback=_head,
            help="A head of the audit of keys that was kept elsewhere; `none`: no key was ever held or shredded.",
        ),
        policy_option,
        json_option,
        spark_options,
    )
    for option in reversed(options):
        function = option(function)
    return function


def _head(context: click.Context, option: click.Parameter, value: str | None) -> AuditHead | None:
    if value is None:
        return None
    if value == _NO_HEAD:
        return AuditHead(0, "")
    match = re.fullmatch(r"([1-9]\d*):([0-9a-f]{64})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is neither NUMBER:DIGEST nor none", context, option)
    return AuditHead(int(match[1]), match[2])


def _date(context: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
            raise ValueError(value)
        return datetime.fromisoformat(value).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date such as 2026-01-31", context, option) from error


@shred.command(cls=Command)
@_choice_options
@click.option("--as-of", metavar="DATE", callback=_date, help="What is due at the beginning of this day, in UTC.")
@click.pass_context
def plan(
    context: click.Context,
    tables: tuple[str, ...],
    databases: tuple[str, ...],
    key_id: str | None,
    leave_out: tuple[str, ...],
    head: AuditHead | None,
    as_of: datetime | None,
    policy: str,
    as_json: bool,
    launch: Launch,
) -> None:
    """Show which keys are due, what goes dark with each, what stands against it, and where values stay readable.

    Every table is looked at that the state directory knows, by the footers of its files; --table and --database choose
    whose keys are meant.  Nothing is changed.  Exits with 2 when a key would be shredded, with 74 when one that is due
    is refused or a table could not be looked at, else with 0; a key that is held is neither.

    Examples:
      sparkcrypt shred plan --policy policy.yaml
      sparkcrypt shred plan --table sales.customers --as-of 2027-01-01 --policy policy.yaml --json
    """
    with Workplace("sparkcrypt shred", launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.backfill.shred.survey import Selection, Survey
        from sparkcrypt.cli.runs.shred_text import shred_plan_text
        from sparkcrypt.keys.open_service import open_key_service

        store, service = workplace.states(loaded.run_state), open_key_service(loaded.key_service)
        selection = Selection(tables, databases, key_id, leave_out)
        found = Survey(spark, loaded, store, service, selection).plan(as_of=as_of, expected=head)
    show(found.to_dict(), shred_plan_text(found), as_json=as_json)
    context.exit(found.exit_code)
