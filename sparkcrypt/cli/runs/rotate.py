"""`sparkcrypt rotate`, and the job `jobs/rotate_keys.py`: gives a master key a version, and rewraps data keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    PassCommandOptions,
    move_old_option,
    option,
    options_from,
    report_option,
    select_options,
    use,
    where_option,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.text import align_table

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.report import PassReport


@dataclass(frozen=True, kw_only=True)
class RotateOptions(PassCommandOptions, CommandOptions):
    """The options of `sparkcrypt rotate`."""

    key_id: str = option("The master key.", "--key", required=True, metavar="KEY_ID")
    successor: str | None = option("Another key, which the policy names in its place.", "--to", metavar="KEY_ID")
    where: str | None = use(where_option)
    keep_version: bool = option("Make no version; rewrap under the newest one.")
    compromised: bool = option("Somebody else may have used the key: give every file under it new data keys.")
    dry_run: bool = option("Say how much would be rewrapped; exits with 2 if anything would.")
    move_old: bool = use(move_old_option)
    report: str | None = use(report_option)


@click.command(cls=Command)
@options_from(RotateOptions)
@click.pass_context
def rotate(context: click.Context, options: RotateOptions) -> None:
    """Add a version to a master key, and rewrap under it the data keys of every file that holds the key.

    Without --table and --database, of every table of the catalog that holds the key, whoever wrote it; exits with 74
    if it is not known whether a table does.  Data are copied as they are, so nothing is revoked: whoever kept an old
    footer and may use the old version can go on reading.  Afterwards a reader makes one call to the key service for
    each master key.  If the command was killed or its budget was spent, the same command continues under the version
    that was made.

    With --to everything under the key comes under another one, and no version is made.  The policy has to name that one
    in the key's place, and the key under its history.

    With --compromised files are re-keyed instead, page by page, and the report says which copies that does not reach.

    Examples:
      sparkcrypt rotate --key pii --policy policy.yaml --dry-run
      sparkcrypt rotate --key pii --database sales --policy policy.yaml --max-duration 4h
      sparkcrypt rotate --key pii --table sales.customers --keep-version --policy policy.yaml
      sparkcrypt rotate --key pii --to contact --policy policy.yaml
      sparkcrypt rotate --key pii --compromised --policy policy.yaml --dry-run
    """
    check_writable(options.report)
    with (
        Workplace("sparkcrypt rotate", options.launch) as workplace,
        failed_report(workplace, options.report, options.key_id, kind="sparkcrypt backfill", version=1) as failure,
    ):
        policy, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
        from sparkcrypt.runs.rewrite.options import RunOptions

        done = rotate_key(
            spark,
            policy,
            options.key_id,
            tables=options.tables,
            databases=options.databases,
            options=select_options(
                RotationOptions,
                options,
                run=select_options(RunOptions, options, progress=progress_on_stderr()),
                on_failure=lambda left: failure.update(left.to_dict()),
            ),
        )
        workplace.write_report(options.report, done.to_dict())
    coverage = "" if done.coverage is None else "\n\n" + "\n".join(done.coverage.to_lines())
    text = f"{_describe(done)}\n{done.to_text()}{_calls(done)}{coverage}"
    show(done.to_dict(), text, as_json=options.as_json)
    context.exit(done.exit_code)


def _describe(done: PassReport) -> str:
    rotation = done.rotation
    if rotation is None:
        return ""
    if rotation.predecessor is not None:
        return f"key {rotation.key_id}: takes the place of {rotation.predecessor}"
    made = "would be made" if done.dry_run else "was made"
    return f"key {rotation.key_id}: version {rotation.version} {made if rotation.made else 'is the newest'}"


def _calls(done: PassReport) -> str:
    rows = [
        (table.table, f"{table.key_calls.get('before', 0):,}", f"{table.key_calls['after']:,}")
        for table in done.tables
        if "after" in table.key_calls
    ]
    head = ("calls of a reader to the key service", "before", "after")
    return f"\n\n{align_table(rows, head=head)}" if rows else ""
