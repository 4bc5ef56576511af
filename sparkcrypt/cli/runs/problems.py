"""`sparkcrypt backfill resolve`, and the open problems that `status` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    option,
    options_from,
    required_table_option,
    select_options,
    use,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr

if TYPE_CHECKING:
    from sparkcrypt.cli.frame.authentic import Authenticity
    from sparkcrypt.ledger.state.store import StateStore
    from sparkcrypt.runs.old_folders.problems import Problem

_APP = "sparkcrypt backfill"


@dataclass(frozen=True, kw_only=True)
class ResolveOptions(CommandOptions):
    """The options of `sparkcrypt backfill resolve`."""

    problem: str = use(click.argument("problem", metavar="PROBLEM"))
    table: str = use(required_table_option)
    keep: Literal["new", "old"] = option(
        "new: the table is right as it is; old: what is in the old folder now is.",
        required=True,
        type=click.Choice(("new", "old")),
    )
    reason: str = option("Why; it stands in the audit.", required=True, metavar="TEXT")
    adopt: bool = option("With --keep old: believe files that a table which requires encryption would not.")


@click.command(cls=Command)
@options_from(ResolveOptions)
def resolve(options: ResolveOptions) -> None:
    """Decide an open problem of a table: what happened to a unit's old folder after its swap.

    --keep old puts what is in the old folder now into use, and encrypts it; it is refused where rows were written
    since that would be lost.  --keep new leaves the table as it is, and lets `expire` dispose of the old folder.

    Examples:
      sparkcrypt backfill resolve 3f9a2c1d04b7 --table sales.customers --policy policy.yaml --keep new --reason "ours"
    """
    problem, table, keep = options.problem, options.table, options.keep
    with Workplace(_APP, options.launch) as workplace:
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.old_folders.problems import Decision
        from sparkcrypt.runs.passes.resolve_problem import resolve_problem

        decision = select_options(Decision, options)
        done = resolve_problem(spark, table, loaded, problem, decision, progress_on_stderr())
    outcome = f"; run {done.run.run_id}: {done.run.outcome}" if done.run else ""
    text = f"{table}: problem {problem} is resolved: {keep} files are kept{outcome}"
    show(done.to_dict(), text, as_json=options.as_json)


def open_problems(store: StateStore, table_id: str, authenticity: Authenticity) -> tuple[list[Problem], bool]:
    """Return the open problems of a table, and whether they were authenticated, which needs the key service."""
    from sparkcrypt.runs.old_folders.problems import Problems

    mac = authenticity.mac(table_id)
    found = Problems(store, table_id, None if mac is None else lambda: mac).open()
    return found, mac is not None or not found


def problem_lines(problems: list[Problem], *, authenticated: bool) -> list[str]:
    """Return a line of text for each open problem."""
    note = "" if authenticated else " (not authenticated: the key service did not answer)"
    return [f"open problem{note}: {problem.message}" for problem in problems]
