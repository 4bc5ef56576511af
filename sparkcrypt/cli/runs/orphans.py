"""`sparkcrypt backfill orphans`: finds folders of runs that no table, partition or live run refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import DURATION, Launch, json_option, path_option, policy_option, spark_options
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.text import count_of, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.old_folders.orphan_search import Orphan

_APP = "sparkcrypt backfill"
_HEAD = ("folder", "kind", "files", "bytes", "what")


@click.command(cls=Command)
@policy_option
@click.option("--database", "databases", multiple=True, metavar="NAME", help="Only beside the tables of a database.")
@path_option
@click.option("--delete", is_flag=True, help="Delete old files; new ones, staged or once in use, never.")
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

    All databases are looked through, unless one is named.  Old files of a run of which the state directory has nothing
    are listed at once, and kept until nothing has changed for --older-than.  Without --database and --path, stores for
    data skipping whose table is gone are listed too, with the command that drops them; they are never deleted here.

    Examples:
      sparkcrypt backfill orphans --policy policy.yaml
      sparkcrypt backfill orphans --database sales --policy policy.yaml --older-than 30d --delete
    """
    if databases and path is not None:
        raise click.UsageError("give --database or --path, not both")
    with Workplace(_APP, launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.runs.old_folders.orphans import find_orphans

        found = find_orphans(
            spark, loaded, databases=databases, path=path, older_than_seconds=older_than, delete=delete
        )
    show({"orphans": [orphan.to_dict() for orphan in found]}, _text(found), as_json=as_json)


def _text(found: list[Orphan]) -> str:
    if not found:
        return "no folder of a run, and no store, that nobody knows"
    whole = f"{count_of(len(found), 'folder')}, {size_of(sum(orphan.total_bytes for orphan in found))}"
    rows = [
        (entry.folder, entry.kind, f"{entry.files:,}", size_of(entry.total_bytes), orphan_fate(entry))
        for entry in found
    ]
    return f"{whole}\n\n{align_table(rows, head=_HEAD)}"


def orphan_fate(orphan: Orphan) -> str:
    """Return whether a folder was deleted, is kept and why, or may be deleted."""
    return "deleted" if orphan.deleted else f"kept: {orphan.why_kept}" if orphan.why_kept else "may be deleted"
