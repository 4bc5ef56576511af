"""`sparkcrypt backfill orphans`: finds folders of runs that no table, partition or live run refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import DURATION, CommandOptions, option, options_from, path_option, use
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.text import count_of, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.old_folders.orphans import Orphan

_APP = "sparkcrypt backfill"
_HEAD = ("folder", "kind", "files", "bytes", "what")


@dataclass(frozen=True, kw_only=True)
class OrphansOptions(CommandOptions):
    """The options of `sparkcrypt backfill orphans`."""

    databases: tuple[str, ...] = option("Only beside the tables of a database.", "--database", metavar="NAME")
    path: str | None = use(path_option)
    delete: bool = option("Delete old files; new ones, staged or once in use, never.")
    older_than: float = option(
        "Nothing in them changed for so long; 24h or more.",
        type=DURATION,
        default="7d",
        show_default=True,
        metavar="TIME",
    )


@click.command(cls=Command)
@options_from(OrphansOptions)
def orphans(options: OrphansOptions) -> None:
    """Find folders of runs that nobody knows: of dropped tables, or where a state directory was lost.

    All databases are looked through, unless one is named.  Old files of a run of which the state directory has nothing
    are listed at once, and kept until nothing has changed for --older-than.  Without --database and --path, stores for
    data skipping whose table is gone are listed too, with the command that drops them; they are never deleted here.

    Examples:
      sparkcrypt backfill orphans --policy policy.yaml
      sparkcrypt backfill orphans --database sales --policy policy.yaml --older-than 30d --delete
    """
    if options.databases and options.path is not None:
        raise click.UsageError("give --database or --path, not both")
    with Workplace(_APP, options.launch) as workplace:
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.old_folders.orphans import find_orphans

        found = find_orphans(
            spark,
            loaded,
            databases=options.databases,
            path=options.path,
            older_than_seconds=options.older_than,
            delete=options.delete,
        )
    show({"orphans": [orphan.to_dict() for orphan in found]}, _text(found), as_json=options.as_json)


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
