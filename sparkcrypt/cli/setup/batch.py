"""`sparkcrypt batch`: several commands in one Spark session, whose start costs more than most of them do."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from sparkcrypt.cli.frame.command import EXIT_INTERRUPTED, Command
from sparkcrypt.cli.frame.options import Launch, option, options_from, spark_options, use
from sparkcrypt.cli.frame.output import say
from sparkcrypt.errors import EXIT_OK
from sparkcrypt.spark.setup.command_session import shared_session

_STDIN = "-"


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The options of `sparkcrypt batch`."""

    file: str = use(click.argument("file", metavar="FILE"))
    keep_going: bool = option("Run the commands after one that failed too.")
    as_json: bool = option("Run each command with --json; their documents follow one another.", "--json")
    launch: Launch = use(spark_options)


@dataclass(frozen=True, slots=True)
class _Line:
    """A command of the file, and where it is."""

    place: str
    words: tuple[str, ...]


@click.command(cls=Command)
@options_from(BatchOptions)
@click.pass_context
def batch(context: click.Context, options: BatchOptions) -> None:
    """Run commands of a file, one a line, in one Spark session.

    A line has the words of a command as a shell has them, with or without `sparkcrypt` before them; empty lines and
    comments (#) are skipped.  Variables and patterns are not expanded.  Each command prints what it prints alone.  FILE
    may be - for stdin, which is read to its end first.

    The first command that needs Spark starts it for all, with every compiler, since some commands read rows, and with
    the --master, --conf and --verbose of the batch, which no line may have.  The batch ends at the first command that
    does not end with 0, and with its code.  With --keep-going it runs all of them, and ends with the first such code.

    Examples:
      sparkcrypt batch nightly.txt
      sparkcrypt batch - --keep-going < nightly.txt
    """
    program = context.find_root().command
    lines, failed, launch = list(_read_lines(options.file, program)), EXIT_OK, options.launch
    with shared_session("sparkcrypt batch", master=launch.master, conf=dict(launch.conf), verbose=launch.verbose):
        for line in lines:
            code = _run(program, line, as_json=options.as_json)
            failed = failed or code
            if code == EXIT_INTERRUPTED or (code != EXIT_OK and not options.keep_going):
                break
    context.exit(failed)


def _read_lines(file: str, program: click.Command) -> Iterator[_Line]:
    """Yield the commands of a file.

    Raises:
        click.UsageError: it cannot be read, or a line is no command of the program that a batch may have.
    """
    try:
        text = sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.UsageError(f"{file}: cannot be read ({reason}); name a file of commands, or - for stdin") from error
    known = sorted(set(getattr(program, "commands", {})) - {batch.name})
    for number, written in enumerate(text.splitlines(), start=1):
        place = f"{'stdin' if file == _STDIN else file}, line {number}"
        try:
            words = shlex.split(written, comments=True)
        except ValueError as error:
            raise click.UsageError(f"{place}: {error}; nothing was run") from error
        words = words[1:] if words[:1] == ["sparkcrypt"] else words
        if words and words[0] not in known:
            raise click.UsageError(f"{place}: {words[0]!r}; allowed: {', '.join(known)}; nothing was run")
        if words:
            yield _Line(place, tuple(words))


def _run(program: click.Command, line: _Line, *, as_json: bool) -> int:
    """Run a command as the program does, and return its exit code."""
    words = list(line.words)
    if as_json:
        words.insert(words.index("--") if "--" in words else len(words), "--json")
    try:
        program.main(words, prog_name="sparkcrypt")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else EXIT_OK
    if code != EXIT_OK:
        say(f"{line.place}: {shlex.join(line.words[:2])} ended with {code}")
    return code
