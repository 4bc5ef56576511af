"""`sparkcrypt backfill migrate`: checks journals of an earlier release once, so that later runs can use them."""

from __future__ import annotations

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch, json_option, path_option, policy_option, spark_options
from sparkcrypt.cli.frame.output import show
from sparkcrypt.errors import VerificationError
from sparkcrypt.text import count_of

_APP = "sparkcrypt backfill"


@click.command(cls=Command)
@policy_option
@click.option("--table", metavar="DB.TABLE", help="A table of the session catalog.")
@path_option
@json_option
@spark_options
@click.pass_context
def migrate(
    context: click.Context, policy: str, table: str | None, path: str | None, as_json: bool, launch: Launch
) -> None:
    """Check a table's journals of an earlier release against its audit and the metastore, and audit the cut.

    Runs do so by themselves, unless one was interrupted in the middle of a swap: nothing but the state directory tells
    of that, so look first whether `sparkcrypt backfill show RUN` names folders of this table.  A journal of the old
    format that is found later, or that does not agree, is refused for good.

    Examples:
      sparkcrypt backfill migrate --table sales.customers --policy policy.yaml
    """
    if (table is None) == (path is None):
        raise click.UsageError("give --table or --path", context)
    with Workplace(_APP, launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.backfill.old_files.past_run import migrate_target
        from sparkcrypt.backfill.run.encrypt import find_target
        from sparkcrypt.spark.setup.session import configure

        configure(spark, loaded)
        target = find_target(spark, table, path, loaded, None, "native")
        done = migrate_target(spark, target, loaded)
    document = {"table": target.name, "runs": sorted(done.runs), "refused": dict(done.refused)}
    lines = [f"{target.name}: {count_of(len(done.runs), 'run')} of an earlier release checked and audited"]
    lines += [f"refused: run {run_id}: {why}" for run_id, why in sorted(done.refused.items())]
    show(document, "\n".join(lines), as_json=as_json)
    context.exit(VerificationError.exit_code if done.refused else 0)
