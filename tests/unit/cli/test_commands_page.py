"""Pages say of the command line what it is: the reference, and every command and option that a page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sparkcrypt.cli.main import cli
from tests.services.installed import ROOT
from tools.write_commands_page import PAGE, render_page

PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
JOBS = {
    "backfill.py": "backfill",
    "encrypt_table.py": "encrypt",
    "index_table.py": "index",
    "rotate_keys.py": "rotate",
    "shred_keys.py": "shred",
    "verify_table.py": "verify",
}
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:sparkcrypt|spark-submit (?:\S+ )*?\S*jobs/\w+\.py) ")
NO_COMMANDS = ("sparkcrypt journal record",)
"""What is written like a command and is none: what a MAC is over."""


def shown_commands(page: Path) -> Iterator[list[str]]:
    """Yield the commands that a page shows, in words, jobs as the commands that they are."""
    text = page.read_text()
    lines = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    for shown in [*lines, *INLINE.findall(FENCED.sub("", text))]:
        if COMMAND.match(shown) and shown not in NO_COMMANDS:
            words = shlex.split(re.split(r" (?:#|\||&&|>(?!=)|2>|…)", shown)[0])
            job = next((word for word in words if "jobs/" in word), None)
            yield words[1:] if job is None else [JOBS[job.rpartition("/")[2]], *words[words.index(job) + 1 :]]


def check_command(words: list[str]) -> None:
    """Find the command that words name, and see that it takes their options.

    Raises:
        click.UsageError: it does not; a snippet may leave out arguments, but not have others.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="sparkcrypt")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            if words[0] in ("…", "VERB") or not re.fullmatch(r"[a-z-]+", words[0]):
                return
            raise click.UsageError(f"no command {' '.join(words)!r} below {command.name}")
        command, words = found, words[1:]
    try:
        command.make_parser(click.Context(command)).parse_args(list(words))
    except click.BadOptionUsage:
        if not words or not words[-1].startswith("--"):  # a page may name an option without its value
            raise


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    """Every command and option is on the page, in the words of its help."""
    assert PAGE.read_text() == render_page(), "run: python tools/write_commands_page.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_show_are_there(page: Path) -> None:
    """No page shows a command or an option that the command line lacks."""
    wrong = []
    for words in shown_commands(page):
        try:
            check_command(words)
        except click.UsageError as error:
            wrong.append(f"{' '.join(words)}: {error.format_message()}")
    assert wrong == []


def test_the_check_itself_finds_what_is_wrong() -> None:
    """A command or option that is not there is told."""
    for text in ("keys destroy pii", "rotate --kee pii", "plan --table t --apply"):
        with pytest.raises(click.UsageError):
            check_command(text.split())
    assert len([words for page in PAGES for words in shown_commands(page)]) > 100
