"""Prints results to stdout, as one JSON document or as aligned text, and notes to stderr."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from sparkcrypt.spark.setup.command_session import print_error_line
from sparkcrypt.text import align_rows


def show(document: Any, text: str, *, as_json: bool) -> None:
    """Write a command's result to stdout.

    Args:
        document: the result as JSON values.
        text: the result as text.
        as_json: whether to print the document instead of the text.
    """
    click.echo(json.dumps(document, indent=2, ensure_ascii=False) if as_json else text)


def say(text: str) -> None:
    """Write a line to stderr, or to spark-submit's stderr if this process is its driver."""
    try:
        printed = print_error_line(text)
    except Exception:  # noqa: BLE001  # if the JVM has ended, the line must still be printed
        printed = False
    if not printed:
        click.echo(text, err=True)


def align_table(rows: Sequence[Sequence[object]], *, head: Sequence[str] = (), indent: str = "") -> str:
    """Return rows as lines with aligned columns; None is printed as a dash."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    return "\n".join(indent + line for line in align_rows(cells))
