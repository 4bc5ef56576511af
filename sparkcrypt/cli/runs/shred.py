"""`sparkcrypt shred plan|apply`, and the job `jobs/shred_keys.py`: deletes master keys of data past retention."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import datetime, timezone

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    TablesOptions,
    leave_out_option,
    option,
    options_from,
    report_option,
    select_options,
    use,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.runs.keys.shredding_plan import (
    REPORT_KIND,
    REPORT_VERSION,
    ShreddedKey,
    ShredPlan,
)

_NO_HEAD = "none"


@click.group(cls=Group)
def shred() -> None:
    """Delete master keys of data past their retention, so that nobody can ever read these again.

    A key of a template (`contact-{ingest_date:%Y-%m}`) of a tag with `retention` is due when the last day of its bucket
    is longer ago than that, in UTC.
    """


def _head(context: click.Context, option: click.Parameter, value: str | None) -> AuditHead | None:
    if value is None:
        return None
    if value == _NO_HEAD:
        return AuditHead(0, "")
    head = AuditHead.from_text(value)
    if head is None:
        raise click.BadParameter(f"{value!r} is neither NUMBER:DIGEST nor none", context, option)
    return head


def _date(context: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
            raise ValueError(value)
        return datetime.fromisoformat(value).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date such as 2026-01-31", context, option) from error


@dataclass(frozen=True, kw_only=True)
class ShredCommandOptions(TablesOptions, CommandOptions):
    """The options that choose keys, and the common options of both commands."""

    key_id: str | None = option("Only this key, such as a tenant's.", "--key", metavar="KEY_ID")
    leave_out: tuple[str, ...] = use(leave_out_option)
    head: AuditHead | None = option(
        "A head of the audit of keys that was kept elsewhere; `none`: no key was ever held or shredded.",
        metavar="NUMBER:DIGEST|none",
        callback=_head,
    )
    report: str | None = use(report_option)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(ShredCommandOptions):
    """The options of `sparkcrypt shred plan`."""

    as_of: datetime | None = option("What is due at the beginning of this day, in UTC.", metavar="DATE", callback=_date)


@dataclass(frozen=True, kw_only=True)
class ApplyOptions(ShredCommandOptions):
    """The options of `sparkcrypt shred apply`."""

    reason: str | None = option("The reason, for the audit of keys; required with --yes.", metavar="TEXT")
    yes: bool = option("Do not ask for confirmation (for jobs).")


@shred.command(cls=Command)
@options_from(PlanOptions)
@click.pass_context
def plan(context: click.Context, options: PlanOptions) -> None:
    """Show which keys are due, what goes dark with each, what stands against it, and where values stay readable.

    Every table of the catalog is looked at, by the footers of its files; --table and --database choose whose keys are
    meant.  Nothing is changed.  Exits with 2 when a key would be shredded, with 74 when one that is due
    is refused or a table could not be looked at, else with 0; a key that is held is neither.

    Examples:
      sparkcrypt shred plan --policy policy.yaml
      sparkcrypt shred plan --table sales.customers --as-of 2027-01-01 --policy policy.yaml --json
    """
    check_writable(options.report)
    with (
        Workplace("sparkcrypt shred", options.launch) as workplace,
        failed_report(workplace, options.report, None, kind=REPORT_KIND, version=REPORT_VERSION),
    ):
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.keys.open_service import open_key_service
        from sparkcrypt.runs.keys.find_shreddable import Selection, Survey

        store, service = workplace.state_directory(loaded.run_state), open_key_service(loaded.key_service)
        selection = select_options(Selection, options)
        found = Survey(spark, loaded, store, service, selection).plan(as_of=options.as_of, expected=options.head)
        workplace.write_report(options.report, found.to_report())
    show(found.to_dict(), found.to_text(), as_json=options.as_json)
    context.exit(found.exit_code)


@shred.command("apply", cls=Command)
@options_from(ApplyOptions)
@click.pass_context
def apply_plan(context: click.Context, options: ApplyOptions) -> None:
    """Delete the keys that `shred plan` would: what is under them can never be read again, by anybody.

    It shows the plan and asks for the number of keys, or for the key's id where there is one; nothing is deleted before
    that.  Right before each deletion tables and holds are looked at again.  The audit of keys says first what is done,
    and afterwards that a new process was refused the key.  Given again after it was killed, it goes on.

    Exits with 74 when a key that is due was refused or a table could not be looked at; the other keys are gone then.

    Examples:
      sparkcrypt shred apply --policy policy.yaml
      sparkcrypt shred apply --key tenant-acme --reason "contract ended, case 4711" --policy policy.yaml
      sparkcrypt shred apply --yes --reason "retention of contacts" --policy policy.yaml --json
    """
    if options.yes and not options.reason:
        raise click.UsageError("--yes needs --reason, for those who read the audit of keys", context)
    check_writable(options.report)
    with (
        Workplace("sparkcrypt shred", options.launch) as workplace,
        failed_report(
            workplace, options.report, None, kind=REPORT_KIND, version=REPORT_VERSION, shredded=[]
        ) as failure,
    ):

        def tell(key: ShreddedKey) -> None:
            failure["shredded"].append(key.to_dict())
            say(f"key {key.key_id!r} is gone, effective {key.effective_at}")

        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
        from sparkcrypt.runs.keys.find_shreddable import Selection

        done = shred_keys(
            spark,
            loaded,
            select_options(Selection, options),
            ShredOptions(options.reason, options.head, attended=not options.yes),
            confirm=(lambda _: None) if options.yes else _ask,
            progress=tell,
        )
        workplace.write_report(options.report, done.to_dict())
    show(done.to_dict(), done.to_text(), as_json=options.as_json)
    context.exit(done.exit_code)


def _ask(found: ShredPlan) -> None:
    """Show a plan, and ask the user to type the number of keys to delete, or the id of the only one.

    Raises:
        click.UsageError: the input is something else, or has ended.
    """
    keys = [key.key_id for key in found.chosen]
    wanted = keys[0] if len(keys) == 1 else str(len(keys))
    what = f"the id of the key, {wanted}" if len(keys) == 1 else f"the number of keys, {wanted}"
    say(found.to_text())
    if found.head == _NO_HEAD:
        say("The state directory has no audit of keys: it knows of no hold, and of no key that was shredded.")
    say(f"These keys will be deleted for good: {', '.join(keys)}.  To go on, type {what}:")
    typed = sys.stdin.readline().strip()
    if typed != wanted:
        raise click.UsageError(f"{typed!r} was typed, and not {what}; nothing was deleted")
