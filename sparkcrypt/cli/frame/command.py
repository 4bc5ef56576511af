"""Runs commands and ends them: exit codes, error messages on stderr, and errors as JSON."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from sparkcrypt.cli.frame.output import encode_json, say
from sparkcrypt.errors import EXIT_OK, EXIT_USAGE, SparkcryptError
from sparkcrypt.log_lines import LogSettings
from sparkcrypt.spark.jvm.failures import find_carried_error, find_storage_error, short_text

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as in shells."""
EXIT_UNEXPECTED = 1
TRACEBACK = "SPARKCRYPT_TRACEBACK"
EXIT_CODES = {
    EXIT_OK: "done, or nothing to do",
    EXIT_UNEXPECTED: "an error that nothing foresaw",
    2: "plan, backfill and rotate with --dry-run: files differ from the plan, or would be rewrapped; "
    "shred plan: a key is due",
    EXIT_USAGE: "the command line is wrong, or --where is no condition on partition columns",
    65: "tags, policy and schema do not make a plan",
    66: "not a Parquet or ORC file, or a damaged one",
    69: "key service: key not found, or it cannot be reached; plan: a run would need a key that is missing",
    70: "jar, helper or interpreter",
    71: "a file cannot be reached where it is",
    74: "something was checked and is not as promised",
    75: "another run holds the table, the policy changed, or what a saved plan was made from did",
    77: "the key service refused these credentials",
    78: "policy, option or environment",
    EXIT_INTERRUPTED: "interrupted",
}
"""Exit code -> its meaning, for all commands."""
_HELP_OPTIONS = ["-h", "--help"]
_SEE_CODES = "Exit codes: `sparkcrypt --help` lists them, docs/exit-codes.md explains them."


class Command(click.Command):
    """A command that runs in `run_main`, both as part of the command line and as a job."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Pass the arguments to click.Command; the help keeps the lines of examples, and says where exit codes are."""
        super().__init__(*args, **{"epilog": _SEE_CODES, **named})
        self.help = _with_examples(self.help)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the options that show the help."""
        return _HELP_OPTIONS

    def main(self, *args: Any, **named: Any) -> Any:
        """Run and exit; see `run_main`."""
        sys.exit(run_main(super().main, *args, **named))


class Group(click.Group):
    """A group of commands that runs in `run_main`.

    Args:
        sections: heading -> the commands below it in the help, in order; without it commands are listed by their names.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **named: Any) -> None:
        """Pass the arguments to click.Group; calling a group without a command is a usage error."""
        epilog = _exit_codes() if sections else _SEE_CODES
        super().__init__(*args, **{"no_args_is_help": False, "epilog": epilog, **named})
        self.help = _with_examples(self.help)
        self._sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings."""
        if self._sections is None:
            super().format_commands(ctx, formatter)
            return
        widest = max(map(len, self.commands))
        for heading, names in self._sections.items():
            with formatter.section(heading):
                limit = formatter.width - 6 - widest
                rows = [(name.ljust(widest), self.commands[name].get_short_help_str(limit)) for name in names]
                formatter.write_dl(rows)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the options that show the help."""
        return _HELP_OPTIONS

    def main(self, *args: Any, **named: Any) -> Any:
        """Run and exit; see `run_main`."""
        sys.exit(run_main(super().main, *args, **named))


def run_main(
    main: Callable[..., Any], args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
) -> int:
    """Run a command's ``main`` and return the exit code.

    64 is a usage error, 130 Ctrl-C, 1 an unexpected error; errors of this package have the exit code of their class.

    Args:
        main: click's ``main``.
        args: the arguments; those of the process by default.
        prog_name: the program's name in messages.
        **extra: further arguments of ``main``.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    extra.pop("standalone_mode", None)
    try:
        LogSettings().apply()
        code = main(args=arguments, prog_name=prog_name, standalone_mode=False, **extra)
    except (click.Abort, KeyboardInterrupt) as error:
        return _fail("Interrupted", str(error.__cause__ or error) or "interrupted", EXIT_INTERRUPTED, as_json)
    except click.UsageError as error:
        if error.ctx is not None:
            say(error.ctx.get_usage())
            say(f"'{error.ctx.command_path} --help' tells more.")
        return _fail("UsageError", error.format_message(), EXIT_USAGE, as_json)
    except Exception as error:  # noqa: BLE001  # the outermost handler, which reports every error
        return _fail(*describe_error(error), as_json)
    return code if isinstance(code, int) else EXIT_OK


def describe_error(error: BaseException) -> tuple[str, str, int]:
    """Return an error's class name, its message for the user, and its exit code.

    An error of this package that arrives inside Spark's exceptions is described as if it had been raised here.
    """
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted", str(error) or "interrupted", EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        return type(error).__name__, error.format_message(), error.exit_code
    own_error = error if isinstance(error, SparkcryptError) else find_carried_error(error)
    if own_error is not None:
        return type(own_error).__name__, str(own_error), own_error.exit_code
    of_files = find_storage_error(error)
    if of_files is not None:
        return type(of_files).__name__, str(of_files), of_files.exit_code
    hint = f"set {TRACEBACK}=1 to see where it happened"
    return type(error).__name__, f"{type(error).__name__}: {short_text(error)}; {hint}", EXIT_UNEXPECTED


def _with_examples(text: str | None) -> str | None:
    """Mark the examples so that click does not join their lines."""
    return inspect.cleandoc(text).replace("Examples:\n", "\b\nExamples:\n") if text else text


def _exit_codes() -> str:
    return "\n".join(["\b", "Exit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())])


def _fail(kind: str, message: str, code: int, as_json: bool) -> int:
    if os.environ.get(TRACEBACK) == "1" and sys.exc_info()[0] is not None:
        say(traceback.format_exc().rstrip())
    say(f"error: {message}", level="error")
    if as_json:
        click.echo(encode_json({"error": {"type": kind, "message": message}}))
    return code
