"""`sparkcrypt backfill list|show|status|rollback`: lists runs, shows their state, and rolls them back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sparkcrypt.cli.frame.authentic import Authenticity
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.known_runs import KnownRun, known_runs
from sparkcrypt.cli.frame.options import Launch, json_option, policy_option, spark_options, table_option
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.cli.runs.problems import open_problems, problem_lines
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.journal.unit_status import has_ended, status_of_units
from sparkcrypt.ledger.state.lock import is_held
from sparkcrypt.policy.model import normalized_table
from sparkcrypt.runs.passes.key_status import tell_overdue
from sparkcrypt.runs.passes.lost_tags import recorded_lost_tags
from sparkcrypt.text import count_of

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
        found, authenticity = _find_runs(workplace, policy, table)
    text = align_table([_row(run) for run in found], head=_HEAD) if found else "no run is known"
    show([run.to_dict() for run in found], "\n".join([text, *authenticity.lines()]), as_json=as_json)


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
        found, authenticity = _find_runs(workplace, policy)
    chosen = [entry for entry in found if entry.run_id == run_id]
    if not chosen:
        latest = ", ".join(run.run_id for run in found[-5:]) or "none"
        raise ConfigError(f"run {run_id} is not known in this state directory; the latest: {latest}")
    show(chosen[0].details(), _text(chosen[0], authenticity.lines()), as_json=as_json)


@click.command(cls=Command)
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table, or the folder of a run with --path.")
@json_option
@click.pass_context
def status(context: click.Context, policy: str, table: str, as_json: bool) -> None:
    """Show how far the latest run of a table is, which of its problems are open, and which of its keys are overdue.

    It ends with 74 while a problem is open, a swap may be half done and no run holds the table, the last pass found
    that the table lost tags, or the folder of a table without partitions is missing (which is seen on local disks
    alone).

    Examples:
      sparkcrypt backfill status --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP) as workplace:
        loaded = workplace.policy(policy)
        state_store = workplace.state_directory(loaded.run_state)
        lost = {normalized_table(name): f"{name}: {reason}" for name, reason in recorded_lost_tags(state_store)}
        try:
            runs, authenticity = _find_runs(workplace, policy, table)
        except ConfigError as error:  # no run of it is known
            if normalized_table(table) in lost:
                raise VerificationError(lost[normalized_table(table)]) from error
            raise
        latest = runs[-1]
        tags_lost = [lost[name] for name in {*map(normalized_table, (table, latest.table or table))} if name in lost]
        problems, authenticated = open_problems(state_store, latest.table_id, authenticity)
        overdue = tell_overdue(loaded, [(state_store, latest.table_id)])
        unsettled = [] if is_held(state_store, latest.table_id) else _find_unsettled(runs)
    text = "\n".join([_text(latest, authenticity.lines()), *problem_lines(problems, authenticated=authenticated)])
    if latest.state == "unfinished":
        text += "\nit is running, or was interrupted: then the command that began it continues it"
    if latest.state == "paused":
        text += "\nits budget was spent; the command that began it goes on"
    text += "".join(f"\n{line}" for line in (*tags_lost, *unsettled))
    text += "".join(f"\nrotation overdue: {line}" for line in overdue)
    found: dict[str, Any] = {
        "problems": [problem.to_dict() for problem in problems],
        "problems_authenticated": authenticated,
        "tags_lost": tags_lost,
        "unsettled": unsettled,
    }
    show({**latest.details(), **found, "rotations_overdue": list(overdue)}, text, as_json=as_json)
    context.exit(VerificationError.exit_code if problems or unsettled or tags_lost else 0)


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
        from sparkcrypt.runs.index.carry_names import explain_stale
        from sparkcrypt.runs.old_folders.rollback import rollback_run

        done = rollback_run(spark, table, loaded, run_id, dry_run=dry_run, progress=progress_on_stderr())
    verb = "would be put back" if dry_run else "put back"
    what = f"{count_of(len(done.units), 'unit')}, {count_of(done.files, 'file')}"
    stale = [f"warning: {line}" for line in explain_stale(done.table, done.index)]
    text = "\n".join([f"{done.table}: run {done.run_id}: {what} {verb}", *(f"  {unit}" for unit in done.units), *stale])
    show(done.to_dict(), text, as_json=as_json)


def _find_runs(workplace: Workplace, policy: str, table: str | None = None) -> tuple[list[KnownRun], Authenticity]:
    """Return the runs in the state directory, and the object with the reasons why some are not authenticated."""
    loaded = workplace.policy(policy)
    store = workplace.state_directory(loaded.run_state)
    authenticity = Authenticity(store, loaded)
    return known_runs(store, table, authenticity), authenticity


def _find_unsettled(runs: Sequence[KnownRun]) -> list[str]:
    """Return a line for each unit of a table whose swap may be half done, and one if the table's folder is missing."""
    lines, folders = list[str](), dict[str, str]()
    for run in runs:
        journal = run.journal
        for name, unit in status_of_units(journal.records if journal else ()).items():
            begun = unit.step == "unit_swapping" and unit.resolved is None and journal and not has_ended(journal)
            if begun or unit.step == "unit_rolling_back":
                lines.append(f"{name}: a swap by run {run.run_id} may be half done; run `sparkcrypt backfill` again")
            if unit.swapped and not unit.partition_path:
                folders[name] = str(unit.fields["outcome"].get("new_location", ""))  # a record may lack it
    local = {name: Path(place.removeprefix("file:")) for name, place in folders.items() if place.startswith("file:/")}
    missing = [f"{name}: {place}, its folder, is missing" for name, place in local.items() if not place.exists()]
    return [*lines, *missing]


def _row(run: KnownRun) -> tuple[object, ...]:
    short = run.to_dict()
    return run.run_id, run.table or run.table_id, run.state, short["units"], short["started"]


def _text(run: KnownRun, doubts: list[str]) -> str:
    lines = [f"{run.table or run.table_id}: run {run.run_id}: {run.state}"]
    if not run.authenticated:
        lines += [f"  {line}" for line in doubts or ["not authenticated"]]
    if run.damage:
        lines.append(f"  {run.damage}")
    rows = [
        (detail["unit"], detail["step"].removeprefix("unit_"), detail["error"]) for detail in run.details()["units"]
    ]
    return "\n".join([*lines, *([align_table(rows, head=("unit", "last step", "error"), indent="  ")] if rows else [])])
