"""`sparkcrypt keys retire`: ends the use of a master key's older versions, once nothing known needs them."""

from __future__ import annotations

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch, json_option, policy_option, spark_options
from sparkcrypt.cli.frame.output import show


@click.command("retire", cls=Command)
@click.argument("key_id")
@click.option("--below", required=True, type=click.IntRange(2), metavar="N", help="The first version that stays.")
@click.option(
    "--leave-out", multiple=True, metavar="TABLE", help="Do not ask of this table, such as one that was dropped."
)
@policy_option
@json_option
@spark_options
def retire_key(key_id: str, below: int, leave_out: tuple[str, ...], policy: str, as_json: bool, launch: Launch) -> None:
    """End the use of a master key's versions below N; refused (74) while something that is known needs one.

    The footers of every table that the state directory knows are read anew; old files that wait for expiry, MAC keys of
    audits and secrets of runs count too.  Copies and backups of files are not known.  With Vault the versions can be
    brought back (min_decryption_version); a local key service removes them.

    Examples:
      sparkcrypt keys retire pii --below 3 --policy policy.yaml
    """
    with Workplace("sparkcrypt keys", launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.backfill.many.retire import retire_versions

        done = retire_versions(spark, loaded, key_id, below, leave_out=leave_out)
    show({**done.to_dict(), "below": below}, f"{key_id}: versions below {below} unwrap nothing now", as_json=as_json)
