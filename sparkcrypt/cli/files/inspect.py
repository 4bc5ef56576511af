"""`sparkcrypt inspect`: prints how files are encrypted, from their footers; needs no keys."""

from __future__ import annotations

from dataclasses import replace

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.named_files import named_files, policy_keys
from sparkcrypt.cli.frame.options import any_key_option, json_option, optional_policy_option
from sparkcrypt.cli.frame.output import show
from sparkcrypt.errors import FormatError
from sparkcrypt.files.format import AnySummary, format_of
from sparkcrypt.files.orc import OrcSummary
from sparkcrypt.schema import join_dotted
from sparkcrypt.text import align_table, count_of

_FOOTERS = {
    "encrypted": "footer encrypted",
    "plaintext_signed": "footer in clear, signed",
    "plaintext": "not encrypted",
}


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@optional_policy_option
@any_key_option
@json_option
def inspect(paths: tuple[str, ...], policy: str | None, any_key: bool, as_json: bool) -> None:
    """Show how files are encrypted: footer, algorithm, and the key id of each column.

    PATH is a Parquet or ORC file, told by how it begins, or a folder of them.  No key is needed; what an encrypted
    footer hides is shown when --policy gives keys, and is null otherwise.

    Examples:
      sparkcrypt inspect part-00000.snappy.parquet
      sparkcrypt inspect --json --policy policy.yaml warehouse/customers
    """
    with Workplace("sparkcrypt inspect", short=True) as workplace:
        retrieve = policy_keys(workplace.policy(policy), any_key=any_key) if policy else None
        summaries: list[AnySummary] = []
        for file in named_files(workplace, paths):
            with file.open() as stream:
                try:
                    found = format_of(stream).inspect(stream, retrieve_key=retrieve)
                    summaries.append(replace(found, path=file.path))
                except FormatError as error:
                    raise FormatError(f"{file.path}: {error}") from error
    show([summary.to_dict() for summary in summaries], "\n".join(map(summary_text, summaries)), as_json=as_json)


def summary_text(summary: AnySummary) -> str:
    """Return a file's summary as lines."""
    if isinstance(summary, OrcSummary):
        return _orc_text(summary)
    head = f"{summary.path}: {_FOOTERS[summary.footer]}"
    if summary.algorithm:
        head += f", {summary.algorithm}, footer key {summary.footer_key or 'not told'}"
    if summary.external_material:
        head += ", key material in a file beside it"
    if summary.rows is not None and summary.row_groups is not None:
        head += f"; {count_of(summary.rows, 'row')} in {count_of(summary.row_groups, 'row group')}"
    if summary.columns is None:
        return f"{head}\n  columns are hidden; give --policy to see them"
    states = {True: "encrypted", False: "plaintext", None: "no data"}
    rows = [(join_dotted(path), states[column.encrypted], column.key_id) for path, column in summary.columns.items()]
    return f"{head}\n{align_table(rows, head=('column', 'state', 'key'), indent='  ')}" if rows else head


def _orc_text(summary: OrcSummary) -> str:
    state = "columns encrypted" if summary.encrypted else "not encrypted"
    head = f"{summary.path}: ORC, {state}, {summary.compression}, by {summary.writer}"
    head += f"; {count_of(summary.rows, 'row')} in {count_of(summary.stripes, 'stripe')}"
    rows = [
        (join_dotted(path), "encrypted" if item.encrypted else "plaintext", item.key_id, item.algorithm, item.mask)
        for path, item in summary.columns.items()
    ]
    return f"{head}\n{align_table(rows, head=('column', 'state', 'key', 'algorithm', 'mask'), indent='  ')}"
