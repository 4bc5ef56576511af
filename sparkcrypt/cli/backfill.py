"""`sparkcrypt backfill`: what runs were made, how far they are, and the disposal of their old files."""

from __future__ import annotations

import click

from sparkcrypt.cli.command import Command, Group
from sparkcrypt.cli.options import Launch, json_option, policy_option, spark_options, table_option
from sparkcrypt.cli.output import aligned, counted, show, size
from sparkcrypt.cli.runs import KnownRun, known_runs
from sparkcrypt.cli.session import Workplace
from sparkcrypt.errors import ConfigError

_APP = "sparkcrypt backfill"
_HEAD = ("run", "table", "state", "units", "started")


@click.group(cls=Group)
def backfill() -> None:
    """Look at runs, which encrypt what tables hold already, and dispose of the files that they replaced."""


@backfill.command("list", cls=Command)
@policy_option
@table_option
@json_option
def list_(policy: str, table: str | None, as_json: bool) -> None:
    """List the runs that the policy's state directory knows.

    Examples:
      sparkcrypt backfill list --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        found = known_runs(workplace.states(workplace.policy(policy).run_state), table)
    text = aligned([_row(one) for one in found], head=_HEAD) if found else "no run is known"
    show([one.to_dict() for one in found], text, as_json=as_json)


@backfill.command("show", cls=Command)
@click.argument("run_id", metavar="RUN")
@policy_option
@json_option
def show_run(run_id: str, policy: str, as_json: bool) -> None:
    """Show one run: its options and the last step of each unit.

    Examples:
      sparkcrypt backfill show 20260131T120000000Z-1a2b3c --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        found = known_runs(workplace.states(workplace.policy(policy).run_state))
    chosen = [one for one in found if one.run_id == run_id]
    if not chosen:
        known = ", ".join(one.run_id for one in found[-5:]) or "none"
        raise ConfigError(f"run {run_id} is not known in this state directory; the latest: {known}")
    show(chosen[0].details(), _text(chosen[0]), as_json=as_json)


@backfill.command(cls=Command)
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table, or the directory of a run with --path.")
@json_option
def status(policy: str, table: str, as_json: bool) -> None:
    """Show how far the latest run of a table is.

    Examples:
      sparkcrypt backfill status --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        latest = known_runs(workplace.states(workplace.policy(policy).run_state), table)[-1]
    text = _text(latest)
    if latest.state == "unfinished":
        text += "\nit is running, or was interrupted: then the same `sparkcrypt encrypt` command continues it"
    show(latest.details(), text, as_json=as_json)


@backfill.command(cls=Command)
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table of the session catalog.")
@click.option("--run", "run_id", metavar="RUN", help="Which run; every finished one by default.")
@click.option("--dry-run", is_flag=True, help="Tell what would be deleted, and delete nothing.")
@json_option
@spark_options
def expire(policy: str, table: str, run_id: str | None, dry_run: bool, as_json: bool, launch: Launch) -> None:
    """Delete the old files of runs, when no reader needs them any more.

    They are listed again first; when a file is there that no run knew, nothing is deleted.

    Examples:
      sparkcrypt backfill expire --table sales.customers --policy policy.yaml --dry-run
    """
    with Workplace(_APP, launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.backfill.expire import expire_run

        done = expire_run(spark, table, loaded, run_id=run_id, dry_run=dry_run)
    verb = "would be deleted" if dry_run else "deleted"
    what = f"{counted(done.files, 'file')}, {size(done.total_bytes)}, in {counted(len(done.folders), 'folder')}"
    text = "\n".join(
        [
            f"{done.table}: {counted(len(done.run_ids), 'run')}: {what} {verb}",
            *(f"  {folder}" for folder in done.folders),
        ]
    )
    show(done.to_dict(), text, as_json=as_json)


def _row(run: KnownRun) -> tuple[object, ...]:
    short = run.to_dict()
    return run.run_id, run.table or run.table_id, run.state, short["units"], short["started"]


def _text(run: KnownRun) -> str:
    lines = [f"{run.table or run.table_id}: run {run.run_id}: {run.state}"]
    if run.damage:
        lines.append(f"  {run.damage}")
    rows = [(one["unit"], one["step"].removeprefix("unit_"), one["error"]) for one in run.details()["units"]]
    return "\n".join([*lines, *([aligned(rows, head=("unit", "last step", "error"), indent="  ")] if rows else [])])
