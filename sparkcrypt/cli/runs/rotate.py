"""`sparkcrypt rotate`, and the job `jobs/rotate_keys.py`: gives a master key a version, and rewraps data keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.options import (
    Launch,
    accept_option,
    budget_options,
    databases_option,
    json_option,
    move_old_option,
    policy_option,
    report_option,
    spark_options,
    where_option,
)
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.cli.frame.pass_text import pass_text
from sparkcrypt.cli.frame.progress import progress_on_stderr

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.report import PassReport


@click.command(cls=Command)
@click.option("--key", "key_id", required=True, metavar="KEY_ID", help="The master key.")
@click.option("--to", "successor", metavar="KEY_ID", help="Another key, which the policy names in its place.")
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="A table, or a pattern of their names.")
@databases_option
@policy_option
@where_option
@click.option("--keep-version", is_flag=True, help="Make no version; rewrap under the one that is newest.")
@click.option(
    "--compromised", is_flag=True, help="Somebody else may have used the key: give every file under it new data keys."
)
@click.option("--dry-run", is_flag=True, help="Say how much would be rewrapped; exits with 2 if anything would.")
@budget_options
@accept_option
@move_old_option("Move old files out of the table's folder at once; see `sparkcrypt encrypt`.")
@report_option
@json_option
@spark_options
@click.pass_context
def rotate(
    context: click.Context,
    key_id: str,
    successor: str | None,
    tables: tuple[str, ...],
    databases: tuple[str, ...],
    policy: str,
    where: str | None,
    keep_version: bool,
    compromised: bool,
    dry_run: bool,
    max_bytes: int | None,
    max_duration: float | None,
    parallelism: int,
    accept_path_readers: bool,
    move_old: bool,
    report: str | None,
    as_json: bool,
    launch: Launch,
) -> None:
    """Add a version to a master key, and rewrap under it the data keys of every file that holds the key.

    Without --table and --database, of every table of the catalog that holds the key, whoever wrote it; exits with 74
    where nobody can tell of a table.  Data are copied as they are: this is no revocation, since who kept an old footer
    and the old version can go on reading.  A reader makes as many calls to the key service afterwards as there are
    master keys.  Given again after it was killed,
    or after its budget was spent, it goes on under the version that it made.

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
    check_writable(report)
    with (
        Workplace("sparkcrypt rotate", launch) as workplace,
        failed_report(workplace, report, key_id, kind="sparkcrypt backfill", version=1) as failure,
    ):
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.runs.keys.rotate import rotate_key
        from sparkcrypt.runs.passes.passes import PassOptions
        from sparkcrypt.runs.rewrite.options import RunOptions

        run = RunOptions(where=where, dry_run=dry_run, move_old=move_old, parallelism=parallelism)
        done = rotate_key(
            spark,
            loaded,
            key_id,
            successor=successor,
            tables=tables,
            databases=databases,
            keep_version=keep_version,
            compromised=compromised,
            options=PassOptions(
                run=run,
                accept_path_readers=accept_path_readers,
                max_bytes=max_bytes,
                max_seconds=max_duration,
            ),
            progress=progress_on_stderr(),
            on_failure=lambda left: failure.update(left.to_dict()),
        )
        if report is not None:
            workplace.write(report, json.dumps(done.to_dict(), indent=2, ensure_ascii=False) + "\n")
    show(done.to_dict(), f"{_describe(done)}\n{pass_text(done)}{_calls(done)}{_coverage(done)}", as_json=as_json)
    context.exit(done.exit_code)


def _describe(done: PassReport) -> str:
    rotation = done.rotation
    if rotation is None:
        return ""
    if rotation.predecessor is not None:
        return f"key {rotation.key_id}: takes the place of {rotation.predecessor}"
    made = "would be made" if done.dry_run else "was made"
    return f"key {rotation.key_id}: version {rotation.version} {made if rotation.made else 'is the newest'}"


def _coverage(done: PassReport) -> str:
    return "" if done.coverage is None else "\n\n" + "\n".join(done.coverage.to_lines())


def _calls(done: PassReport) -> str:
    rows = [
        (table.table, f"{table.key_calls.get('before', 0):,}", f"{table.key_calls['after']:,}")
        for table in done.tables
        if "after" in table.key_calls
    ]
    head = ("calls of a reader to the key service", "before", "after")
    return f"\n\n{align_table(rows, head=head)}" if rows else ""
