"""`sparkcrypt backfill expire`: deletes the old files of runs, for one table or many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import AGE, CommandOptions, databases_option, option, options_from, path_option, use
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.cli.runs.orphans import orphan_fate
from sparkcrypt.errors import VerificationError
from sparkcrypt.text import count_of, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.old_folders.expire import Expired
    from sparkcrypt.runs.passes.passes import ManyExpired

_APP = "sparkcrypt backfill"


@dataclass(frozen=True, kw_only=True)
class ExpireOptions(CommandOptions):
    """The options of `sparkcrypt backfill expire`."""

    tables: tuple[str, ...] = option("A table, a pattern, or a dropped one's UUID.", "--table", metavar="TABLE")
    databases: tuple[str, ...] = use(databases_option)
    path: str | None = use(path_option)
    run_id: str | None = option("Which run of a table, whatever its age; all by default.", "--run", metavar="RUN")
    older_than: float | None = option(
        "Runs that put new files into use later keep their old ones; the policy's grace by default, 0s for none.",
        type=AGE,
        metavar="TIME",
    )
    dry_run: bool = option("Tell what would be deleted, and delete nothing.")


@click.command(cls=Command)
@options_from(ExpireOptions)
@click.pass_context
def expire(context: click.Context, options: ExpireOptions) -> None:
    """Delete the old files of runs, when no reader needs them any more.

    They are listed again first.  What late commits left among them is reconciled with the table; where that cannot
    be told from an overwrite, nothing is deleted.  A folder with anything beside its data that is no run's, such as a
    stream's checkpoint or an archive, stays and is named.

    Examples:
      sparkcrypt backfill expire --table sales.customers --policy policy.yaml --dry-run
      sparkcrypt backfill expire --database sales --policy policy.yaml --older-than 7d
    """
    tables, databases, path, run_id = options.tables, options.databases, options.path, options.run_id
    text = tables[0] if len(tables) == 1 and not databases and path is None and not _names_many(tables[0]) else None
    if not (tables or databases or path):
        raise click.UsageError("give --table, --database or --path", context)
    if run_id is not None and text is None:
        raise click.UsageError("--run goes with one --table, by its name", context)
    with Workplace(_APP, options.launch) as workplace:
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
        from sparkcrypt.runs.passes.choose_tables import Choice
        from sparkcrypt.runs.passes.passes import expire_many

        age = (
            options.older_than
            if options.older_than is not None
            else 0.0
            if run_id is not None
            else float(loaded.grace_seconds)
        )
        expiry = ExpiryOptions(age, options.dry_run, progress_on_stderr())
        if text is not None:
            done = expire_run(spark, text, loaded, run_id=run_id, options=expiry)
            show(done.to_dict(), _text(done), as_json=options.as_json)
            context.exit(VerificationError.exit_code if done.unread or done.refused else 0)
        found = expire_many(spark, loaded, Choice(tables, databases), path=path, options=expiry)
    show(found.to_dict(), _text_of_many(found), as_json=options.as_json)
    stays = any(table.unread or table.refused for table in found.tables)
    context.exit(VerificationError.exit_code if found.failed or stays else 0)


def _names_many(table: str) -> bool:
    return any(sign in table for sign in "*?[") or (table.count("-") == 4 and "." not in table)


def _text(done: Expired) -> str:
    carried = f"; {count_of(done.carried, 'file')} of late commits reconciled before" if done.carried else ""
    verb = "would be deleted" if done.dry_run else "deleted"
    what = f"{count_of(done.files, 'file')}, {size_of(done.total_bytes)}, in {count_of(len(done.folders), 'folder')}"
    younger = "; younger runs keep their old files: see --older-than" if done.younger else ""
    return "\n".join(
        [
            f"{done.table}: {count_of(len(done.run_ids), 'run')}: {what} {verb}{carried}{younger}",
            *(f"  {folder}" for folder in done.folders),
            *(f"  {file}: statistics in plaintext, {verb} too" for file in done.summaries),
            *(f"left as it is: {unit}: {why}" for unit, why in done.superseded.items()),
            *(f"refused: {why}" for why in done.refused.values()),
            *(f"warning: {line}" for line in done.unread),
            *_offer_home(done),
        ]
    )


def _offer_home(done: Expired) -> list[str]:
    """Return what brings the units that are away from their former homes back, for jobs that name folders."""
    if not done.homes:
        return []
    first, more = next(iter(done.homes.values())), f" and {len(done.homes) - 1:,} more" if len(done.homes) > 1 else ""
    return [
        f"away from {first}{more}: if jobs use such a folder by path, `sparkcrypt encrypt --home --table {done.table}` "
        "brings the files back, once the old ones have expired"
    ]


def _text_of_many(found: ManyExpired) -> str:
    lines = [_text(table) for table in found.tables]
    for name, left in found.left.items():
        lines += [f"{name}: {entry.folder}: {count_of(entry.files, 'file')}: {orphan_fate(entry)}" for entry in left]
    lines += [f"failed: {entry.table}: {entry.error}: {entry.message}" for entry in found.failed]
    return "\n".join(lines) or "no run is known of any of them"
