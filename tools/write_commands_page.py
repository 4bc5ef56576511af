"""Render docs/commands.md, the reference of the command line, from the commands themselves.

`python tools/write_commands_page.py` writes it alone, `python -m tools.write_reference_pages` with its like.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from sparkcrypt.cli.main import cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
HEAD = """# Commands

This page lists every command of `sparkcrypt` with its arguments and options, as `--help` does. It is written by
`tools/write_commands_page.py`. Jobs for `spark-submit` (`jobs/`, in
the folder that `sparkcrypt jobs` prints) take the options of the commands that they are named for.
[exit-codes.md](exit-codes.md) lists how commands end.
"""


def render_page() -> str:
    """Return the page as Markdown."""
    sections = [_render_command(name, command) for name, command in walk_commands(cli, "sparkcrypt")]
    return "\n".join([HEAD, *sections])


def walk_commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command below a group with its full name, in the order of ``--help``."""
    for word in group.list_commands(click.Context(group)):
        command = group.commands[word]
        yield f"{name} {word}", command
        if isinstance(command, click.Group):
            yield from walk_commands(command, f"{name} {word}")


def _render_command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    about, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    usage = " ".join([name, *(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")])
    parts = [f"## {name}\n", _escape(about.strip().replace("\b\n", "")), ""]
    if usage != name:
        parts += [f"`{usage}`", ""]
    if examples:
        parts += ["```bash", inspect.cleandoc(examples), "```", ""]
    records = [record for option in command.params if (record := option.get_help_record(context))]
    if records:
        parts += ["| option | meaning |", "|---|---|"]
        rows = [(option.replace("|", "\\|"), _escape(meaning)) for option, meaning in records]
        parts += [f"| `{option}` | {meaning} |" for option, meaning in rows]
        parts.append("")
    return "\n".join(parts)


def _escape(text: str) -> str:
    """Keep Markdown from reading help as markup, but for code."""
    pieces = re.split(r"(`[^`]*`)", text.replace("``", "`"))
    return "".join(
        piece if piece[:1] == "`" else re.sub(r"([|*_<>])", r"\\\1", piece).replace("  ", " ") for piece in pieces
    )


if __name__ == "__main__":
    PAGE.write_text(render_page())
