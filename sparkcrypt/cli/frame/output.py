"""Prints results to stdout, as one JSON document or as aligned text, and notes to stderr."""

from __future__ import annotations

import json
from typing import Any

import click

from sparkcrypt.errors import ConfigError
from sparkcrypt.log_lines import log_form, log_line
from sparkcrypt.spark.setup.command_session import print_error_line
from sparkcrypt.text import CONTROLS, replace_controls


def show(document: Any, text: str, *, as_json: bool) -> None:
    """Write a command's result to stdout.

    Args:
        document: the result as JSON values.
        text: the result as text.
        as_json: whether to print the document instead of the text.
    """
    click.echo(encode_json(document, indent=2) if as_json else replace_controls(text))


def encode_json(document: Any, *, indent: int | None = None) -> str:
    """Return a document as JSON in which nothing controls a terminal."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, *, level: str = "info") -> None:
    """Write a text for people to stderr as it is, or as a line of the log if that has JSON objects."""
    _print(log_line(text, "json", level=level) if writes_json() else replace_controls(text))


def log(message: str) -> None:
    """Write a line of the log to stderr."""
    _print(log_line(message, "json" if writes_json() else "text"))


def writes_json() -> bool:
    """Tell whether lines on stderr are JSON objects; where the environment names no form, they are text."""
    try:
        return log_form() == "json"
    except ConfigError:
        return False


def _print(text: str) -> None:
    """Write to stderr, or to spark-submit's stderr if this process is its driver."""
    try:
        printed = print_error_line(text)
    except Exception:  # noqa: BLE001  # if the JVM has ended, the line must still be printed
        printed = False
    if not printed:
        click.echo(text, err=True)
