"""Results on stdout: one JSON document, or text that lines up."""

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
        document: JSON values.
        text: the same for a person.
        as_json: which of the two.
    """
    click.echo(json.dumps(document, indent=2, ensure_ascii=False) if as_json else text)


def say(text: str) -> None:
    """Write a line to stderr, where it is no part of the result: to that of spark-submit, when it runs this."""
    try:
        printed = print_error_line(text)
    except Exception:  # noqa: BLE001  # a JVM that is gone must not hide what is to be said
        printed = False
    if not printed:
        click.echo(text, err=True)


def align_table(rows: Sequence[Sequence[object]], *, head: Sequence[str] = (), indent: str = "") -> str:
    """Return rows as lines whose columns line up; None stands as a dash."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    return "\n".join(indent + line for line in align_rows(cells))
