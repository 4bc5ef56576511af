"""`sparkcrypt inspect`: what the footers of files say, without any key."""

from __future__ import annotations

from dataclasses import replace

import click

from sparkcrypt.cli.command import Command
from sparkcrypt.cli.files import named_files, policy_keys
from sparkcrypt.cli.options import json_option, optional_policy_option
from sparkcrypt.cli.output import aligned, counted, show
from sparkcrypt.cli.session import Workplace
from sparkcrypt.errors import FormatError
from sparkcrypt.parquet import FileSummary, inspect_file
from sparkcrypt.schema import dotted

_FOOTERS = {
    "encrypted": "footer encrypted",
    "plaintext_signed": "footer in clear, signed",
    "plaintext": "not encrypted",
}


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@optional_policy_option
@json_option
def inspect(paths: tuple[str, ...], policy: str | None, as_json: bool) -> None:
    """Show how files are encrypted: footer, algorithm, and the key id of each column.

    PATH is a Parquet file or a folder of them.  No key is needed; what an encrypted footer hides is shown when --policy
    gives keys, and is null otherwise.

    Examples:
      sparkcrypt inspect part-00000.snappy.parquet
      sparkcrypt inspect --json --policy policy.yaml warehouse/customers
    """
    with Workplace("sparkcrypt inspect") as workplace:
        retrieve = policy_keys(workplace.policy(policy)) if policy else None
        summaries: list[FileSummary] = []
        for file in named_files(workplace, paths):
            with file.open() as stream:
                try:
                    summaries.append(replace(inspect_file(stream, retrieve_key=retrieve), path=file.path))
                except FormatError as error:
                    raise FormatError(f"{file.path}: {error}") from error
    show([one.to_dict() for one in summaries], "\n".join(map(summary_text, summaries)), as_json=as_json)


def summary_text(summary: FileSummary) -> str:
    """Return a file's summary as lines."""
    head = f"{summary.path}: {_FOOTERS[summary.footer]}"
    if summary.algorithm:
        head += f", {summary.algorithm}, footer key {summary.footer_key or 'not told'}"
    if summary.rows is not None and summary.row_groups is not None:
        head += f"; {counted(summary.rows, 'row')} in {counted(summary.row_groups, 'row group')}"
    if summary.columns is None:
        return f"{head}\n  columns are hidden; give --policy to see them"
    states = {True: "encrypted", False: "plaintext", None: "no data"}
    rows = [(dotted(path), states[column.encrypted], column.key_id) for path, column in summary.columns.items()]
    return f"{head}\n{aligned(rows, head=('column', 'state', 'key'), indent='  ')}" if rows else head
