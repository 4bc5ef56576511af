"""`sparkcrypt keys retire`: ends the use of a master key's older versions, reversibly until they are destroyed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import AGE, Launch, json_option, policy_option, spark_options
from sparkcrypt.cli.frame.output import show

if TYPE_CHECKING:
    from sparkcrypt.backfill.many.retire import Retired


@click.command("retire", cls=Command)
@click.argument("key_id")
@click.option("--below", type=click.IntRange(2), metavar="N", help="The first version that stays.")
@click.option(
    "--grace", type=AGE, default="30d", metavar="TIME", help="How long they can be brought back; 30d by default."
)
@click.option("--undo", is_flag=True, help="Bring back the versions that are set aside.")
@click.option(
    "--leave-out", multiple=True, metavar="TABLE", help="Do not ask of this table, such as one that was dropped."
)
@policy_option
@json_option
@spark_options
@click.pass_context
def retire_key(
    context: click.Context,
    /,
    key_id: str,
    below: int | None,
    grace: float,
    undo: bool,
    leave_out: tuple[str, ...],
    policy: str,
    as_json: bool,
    launch: Launch,
) -> None:
    """End the use of a master key's versions below N; refused (74) while something that is known needs one.

    At first they are set aside: they unwrap nothing, a read that needs one is refused with this command's --undo, and
    --undo brings them back.  Given again after the grace, it looks again at everything and destroys them for good.

    The footers of every table of the catalog are read anew; old files that wait for expiry, MAC keys of audits and
    secrets of runs count too, and what cannot be looked at.  Copies, backups and other metastores are not known: they
    are what the grace is for.  The key services local and vault have this; others are refused.

    Examples:
      sparkcrypt keys retire pii --below 3 --policy policy.yaml
      sparkcrypt keys retire pii --below 3 --grace 90d --policy policy.yaml
      sparkcrypt keys retire pii --undo --policy policy.yaml
    """
    if undo == (below is not None):
        raise click.UsageError("give --below, or else --undo", context)
    with Workplace("sparkcrypt keys", launch) as workplace:
        loaded = workplace.policy(policy)
        from sparkcrypt.backfill.many.retire import bring_versions_back, retire_versions

        if below is None:
            done = bring_versions_back(workplace.state_directory(loaded.run_state), loaded, key_id)
        else:
            done = retire_versions(workplace.spark, loaded, key_id, below, grace_seconds=grace, leave_out=leave_out)
    show(done.to_dict(), "\n".join(_describe(done)), as_json=as_json)


def _describe(done: Retired) -> list[str]:
    key_id, usable = done.described.key_id, done.described.first_usable
    lines = [] if done.coverage is None else done.coverage.to_lines()
    if done.coverage is not None:
        lines += [f"warning: {place.to_text()}" for place in done.coverage.by_record if key_id in place.key_ids]
    if done.retirement is not None:
        return [f"{key_id}: {done.retirement.to_text()}", *lines]
    return [f"{key_id}: {done.state}; versions from {usable} on unwrap", *lines]
