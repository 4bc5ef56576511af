"""`sparkcrypt backfill list|show|status|rollback`: what runs were made, how far they are, and their way back."""

from __future__ import annotations

import click

from sparkcrypt.cli.authentic import Authenticity
from sparkcrypt.cli.command import Command
from sparkcrypt.cli.options import Launch, json_option, policy_option, spark_options, table_option
from sparkcrypt.cli.output import aligned, counted, show
from sparkcrypt.cli.problems import open_problems, problem_lines
from sparkcrypt.cli.progress import progress_on_stderr
from sparkcrypt.cli.runs import KnownRun, known_runs
from sparkcrypt.cli.session import Workplace
from sparkcrypt.errors import ConfigError

_APP = "sparkcrypt backfill"
_HEAD = ("run", "table", "state", "units", "started")


@click.command("list", cls=Command)
@policy_option
@table_option
@json_option
def list_(policy: str, table: str | None, as_json: bool) -> None:
    """List the runs that the policy's state directory knows.

    Examples:
      sparkcrypt backfill list --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        found, doubts = _known(workplace, policy, table)
    text = aligned([_row(one) for one in found], head=_HEAD) if found else "no run is known"
    show([one.to_dict() for one in found], "\n".join([text, *doubts]), as_json=as_json)


@click.command("show", cls=Command)
@click.argument("run_id", metavar="RUN")
@policy_option
@json_option
def show_run(run_id: str, policy: str, as_json: bool) -> None:
    """Show one run: its options and the last step of each unit.

    Examples:
      sparkcrypt backfill show 20260131T120000000Z-1a2b3c --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        found, doubts = _known(workplace, policy)
    chosen = [one for one in found if one.run_id == run_id]
    if not chosen:
        known = ", ".join(one.run_id for one in found[-5:]) or "none"
        raise ConfigError(f"run {run_id} is not known in this state directory; the latest: {known}")
    show(chosen[0].details(), _text(chosen[0], doubts), as_json=as_json)


@click.command(cls=Command)
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table, or the directory of a run with --path.")
@json_option
def status(policy: str, table: str, as_json: bool) -> None:
    """Show how far the latest run of a table is, and which of its problems are open.

    Examples:
      sparkcrypt backfill status --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        known, doubts = _known(workplace, policy, table)
        loaded = workplace.policy(policy)
        latest = known[-1]
        problems, authenticated = open_problems(workplace.states(loaded.run_state), latest.table_id, loaded)
    text = "\n".join([_text(latest, doubts), *problem_lines(problems, authenticated=authenticated)])
    if latest.state == "unfinished":
        text += "\nit is running, or was interrupted: then the command that began it continues it"
    if latest.state == "paused":
        text += "\nits budget was spent; the command that began it goes on"
    found = {"problems": [one.to_dict() for one in problems], "problems_authenticated": authenticated}
    show({**latest.details(), **found}, text, as_json=as_json)


@click.command(cls=Command)
@click.argument("run_id", metavar="RUN")
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table of the session catalog.")
@click.option("--dry-run", is_flag=True, help="Tell what would be put back, and change nothing.")
@json_option
@spark_options
def rollback(run_id: str, policy: str, table: str, dry_run: bool, as_json: bool, launch: Launch) -> None:
    """Put the old files of a run back into use, while they are there and nobody has written since.

    The table then differs from its plan again; what the run wrote stays until `expire`.

    Examples:
      sparkcrypt backfill rollback 20260131T120000Z-1a2b3c --table sales.customers --policy policy.yaml --dry-run
    """
    with Workplace(_APP, launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.backfill.rollback import rollback_run

        done = rollback_run(spark, table, loaded, run_id, dry_run=dry_run, progress=progress_on_stderr())
    verb = "would be put back" if dry_run else "put back"
    what = f"{counted(len(done.units), 'unit')}, {counted(done.files, 'file')}"
    text = "\n".join([f"{done.table}: run {done.run_id}: {what} {verb}", *(f"  {unit}" for unit in done.units)])
    show(done.to_dict(), text, as_json=as_json)


def _known(workplace: Workplace, policy: str, table: str | None = None) -> tuple[list[KnownRun], list[str]]:
    """Return the runs that are known, and why some are not authenticated."""
    loaded = workplace.policy(policy)
    store = workplace.states(loaded.run_state)
    authenticity = Authenticity(store, loaded)
    return known_runs(store, table, authenticity), authenticity.lines()


def _row(run: KnownRun) -> tuple[object, ...]:
    short = run.to_dict()
    return run.run_id, run.table or run.table_id, run.state, short["units"], short["started"]


def _text(run: KnownRun, doubts: list[str]) -> str:
    lines = [f"{run.table or run.table_id}: run {run.run_id}: {run.state}"]
    if not run.authenticated:
        lines += [f"  {line}" for line in doubts or ["not authenticated"]]
    if run.damage:
        lines.append(f"  {run.damage}")
    rows = [(one["unit"], one["step"].removeprefix("unit_"), one["error"]) for one in run.details()["units"]]
    return "\n".join([*lines, *([aligned(rows, head=("unit", "last step", "error"), indent="  ")] if rows else [])])
