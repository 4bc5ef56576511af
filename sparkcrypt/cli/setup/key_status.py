"""`sparkcrypt keys status|check`: shows the age and use of master keys, and checks that files can be opened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    Launch,
    TablesOptions,
    json_option,
    option,
    options_from,
    policy_option,
    spark_options,
)
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.key_audit import Hold, Retirement
from sparkcrypt.runs.passes.key_status import KeyStatus, key_statuses
from sparkcrypt.runs.passes.keys_in_use import RecordedPlace
from sparkcrypt.text import count_of, size_of

_HEAD = ("key", "versions", "age", "files", "bytes", "old version", "tables", "kept", "next rotation", "held")
_SHOWN = 20


@click.command("status", cls=Command)
@click.argument("key_ids", nargs=-1, metavar="[KEY_ID…]")
@click.option(
    "--recorded", is_flag=True, help="Count by what runs have recorded alone, without Spark; it may be old, or not all."
)
@policy_option
@json_option
@spark_options
def key_status(key_ids: tuple[str, ...], recorded: bool, policy: str, as_json: bool, launch: Launch) -> None:
    """Show of each master key its versions and age, the tables, files and bytes under it, and its next rotation.

    Files are counted by the footers of every table of the catalog; those that runs have recorded, of files that have
    not changed, are not read again.  What could not be looked at is named.

    Examples:
      sparkcrypt keys status --policy policy.yaml
      sparkcrypt keys status pii --policy policy.yaml --json
      sparkcrypt keys status --recorded --policy policy.yaml
    """
    with Workplace("sparkcrypt keys", launch) as workplace:
        loaded, uses, coverage = workplace.policy(policy), None, None
        if not recorded:
            from sparkcrypt.runs.passes.keys_by_catalog import find_keys_in_use

            in_use = find_keys_in_use(workplace.spark, loaded, keeps=False)
            uses, coverage = (*in_use.tables, *in_use.recorded), in_use.coverage
        store = workplace.state_directory(loaded.run_state)
        found = key_statuses(store, open_key_service(loaded.key_service), loaded, uses)
    chosen = [status for status in found if not key_ids or status.key_id in key_ids]
    now = datetime.now(timezone.utc)
    rows = [status.to_dict(now) for status in chosen]
    lines = [align_table([_row(row) for row in rows], head=_HEAD) if chosen else "no keys", *_notes(chosen)]
    lines += [f"warning: {text}" for status in chosen if recorded for text in _name_uncounted(status)]
    lines += [] if coverage is None else ["", *coverage.to_lines(), *map(_by_record, coverage.by_record)]
    document = {"keys": rows, "coverage": None if coverage is None else coverage.to_dict()}
    show(document, "\n".join(lines), as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(TablesOptions, CommandOptions):
    """The options of `sparkcrypt keys check`."""

    without_former: bool = option("Open with the key service alone, and not with former ones of the policy.")


@click.command("check", cls=Command)
@options_from(CheckOptions)
@click.pass_context
def check_keys(context: click.Context, options: CheckOptions) -> None:
    """Prove that every file of some tables can be opened with the keys at hand; exits with 74 if one cannot.

    Footers are read anew, by tasks where there are many, and each key that a file names is opened and tried on what it
    protects there.  Pages are not read: `sparkcrypt verify` reads them.  Columns under a shredded key are counted, and
    are no reason to end with 74.

    Examples:
      sparkcrypt keys check --table sales.customers --policy policy.yaml
      sparkcrypt keys check --database sales --policy policy.yaml --json
      sparkcrypt keys check --database sales --policy policy.yaml --without-former
    """
    tables, databases = options.tables, options.databases
    if not tables and not databases:
        raise click.UsageError("give --table or --database", context)
    with Workplace("sparkcrypt keys", options.launch) as workplace:
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.keys.check_keys import check_keys as check

        found = check(spark, loaded, tables=tables, databases=databases, without_former=options.without_former)
    rows = [
        (table.table, f"{table.files:,}", f"{table.encrypted:,}", f"{table.plaintext:,}", f"{len(table.unopened):,}")
        for table in found.tables
    ]
    lines = [align_table(rows, head=("table", "files", "opened", "not encrypted", "NOT opened"))]
    unopened = [entry for table in found.tables for entry in table.unopened]
    lines += [f"{entry.what}: {entry.error}: {entry.message}" for entry in unopened[:_SHOWN]]
    if len(unopened) > _SHOWN:
        lines.append(f"… and {len(unopened) - _SHOWN:,} more; --json lists all")
    lines += [
        f"{table.table}: {count_of(files, 'file')} with columns under {key_id!r}, which was shredded"
        for table in found.tables
        for key_id, files in sorted(table.dark.items())
    ]
    lines += [f"skipped: {table}: {reason}" for table, reason in found.passed_over.items()]
    show(found.to_dict(), "\n".join(lines), as_json=options.as_json)
    context.exit(found.exit_code)


def _name_uncounted(status: KeyStatus) -> list[str]:
    """Return a warning about tables that are known to use a key, and of which no footer with it was read since."""
    tables = sorted(table for table, calls in status.tables.items() if not calls)
    if not tables:
        return []
    return [
        f"key {status.key_id!r}: files of {', '.join(tables)} are not counted: nobody has read their footers since a "
        "run wrote them; without --recorded they are read"
    ]


def _by_record(place: RecordedPlace) -> str:
    return f"warning: {place.to_text()}"


def _row(status: dict[str, Any]) -> tuple[object, ...]:
    untold = f", {status['files_of_untold_version']:,} not told" if status["files_of_untold_version"] else ""
    return (
        status["key_id"],
        _versions(status),
        None if status["age_days"] is None else f"{status['age_days']:,} d",
        f"{status['files']:,}",
        size_of(status["bytes"]),
        f"{status['files_on_old_versions']:,}{untold}",
        len(status["tables"]),
        None if status["retention_days"] is None else f"{status['retention_days']:,} d",
        "overdue" if status["overdue"] else status["rotation_due"],
        "not known" if status["holds"] is None else len(status["holds"]) or None,
    )


def _versions(status: dict[str, Any]) -> object:
    if status["versions"] is None:
        return "shredded" if status["shredded"] else "none: not there"
    return status["versions"] or "not told"


def _notes(found: list[KeyStatus]) -> list[str]:
    lines = []
    now = datetime.now(timezone.utc)
    for status in found:
        recorded: list[Hold | Retirement] = [*(status.holds or ())]
        recorded += [status.retired] if status.retired else []
        lines += [f"key {status.key_id!r}: {record.to_text()}" for record in recorded]
        if status.tombstone is not None:
            back = (
                ""
                if status.described is None
                else "; it is THERE AGAIN: `sparkcrypt shred plan` shows what is under it"
            )
            lines.append(f"{status.tombstone.to_text()}; effective {status.tombstone.effective_at}{back}")
        elif status.described is None and status.former_kinds:
            lines.append(
                f"key {status.key_id!r} is in a former key service alone: make it with `sparkcrypt keys create "
                f"{status.key_id}`, then move what is under it"
            )
        elif status.described is None:
            lines.append(f"key {status.key_id!r} is not there, and {count_of(status.amount.files, 'file')} need it")
        if status.former.files:
            lines.append(
                f"key {status.key_id!r}: {count_of(status.former.files, 'file')} under a former key service: "
                f"`sparkcrypt rotate --key {status.key_id} --keep-version` moves them"
            )
        if status.due is not None and status.due.is_overdue(now):
            lines.append(status.due.to_text())
        if status.due is not None and status.due.at is None:
            lines.append(f"key {status.key_id!r}: its key service does not say when its newest version was made")
    if any(status.holds is None for status in found):
        lines.append("holds and shredded keys are not known: these credentials may not open the audit of keys")
    return ["", *lines] if lines else []
