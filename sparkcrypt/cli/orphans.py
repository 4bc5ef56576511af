"""`sparkcrypt backfill orphans`: folders of runs that no table, no partition and no live run knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.command import Command
from sparkcrypt.cli.options import DURATION, Launch, json_option, path_option, policy_option, spark_options
from sparkcrypt.cli.output import aligned, counted, show, size
from sparkcrypt.cli.session import Workplace

if TYPE_CHECKING:
    from sparkcrypt.backfill.orphans import Orphan

_APP = "sparkcrypt backfill"
_HEAD = ("folder", "kind", "files", "bytes", "what")


@click.command(cls=Command)
@policy_option
@click.option("--database", "databases", multiple=True, metavar="NAME", help="Only beside the tables of a database.")
@path_option
@click.option("--delete", is_flag=True, help="Delete old and staged files; new ones never.")
@click.option(
    "--older-than",
    type=DURATION,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Nothing in them changed for so long; 24h or more.",
)
@json_option
@spark_options
def orphans(
    policy: str,
    databases: tuple[str, ...],
    path: str | None,
    delete: bool,
    older_than: float,
    as_json: bool,
    launch: Launch,
) -> None:
    """Find folders of runs that nobody knows: of dropped tables, or where a state directory was lost.

    All databases are looked through, unless one is named.

    Examples:
      sparkcrypt backfill orphans --policy policy.yaml
      sparkcrypt backfill orphans --database sales --policy policy.yaml --older-than 30d --delete
    """
    if databases and path is not None:
        raise click.UsageError("give --database or --path, not both")
    with Workplace(_APP, launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.backfill.orphans import find_orphans

        found = find_orphans(
            spark, loaded, databases=databases, path=path, older_than_seconds=older_than, delete=delete
        )
    show({"orphans": [one.to_dict() for one in found]}, _text(found), as_json=as_json)


def _text(found: list[Orphan]) -> str:
    if not found:
        return "no folder of a run that nobody knows"
    whole = f"{counted(len(found), 'folder')}, {size(sum(one.total_bytes for one in found))}"
    rows = [(one.folder, one.kind, f"{one.files:,}", size(one.total_bytes), orphan_fate(one)) for one in found]
    return f"{whole}\n\n{aligned(rows, head=_HEAD)}"


def orphan_fate(one: Orphan) -> str:
    """Return what became of a folder."""
    return "deleted" if one.deleted else f"kept: {one.why_kept}" if one.why_kept else "may be deleted"
