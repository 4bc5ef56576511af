"""How the options of a command become the value that it, its job and the library read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sparkcrypt.cli.frame.options import SIZE, Launch, option, options_from, spark_options, use
from sparkcrypt.cli.runs.backfill import BackfillOptions
from sparkcrypt.cli.runs.rotate import RotateOptions
from sparkcrypt.cli.tables.encrypt import EncryptOptions
from sparkcrypt.runs.passes.passes import PassOptions
from sparkcrypt.runs.rewrite.options import RunOptions

OWN = {"as_json", "launch", "policy", "report"}


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of several commands."""

    size: int | None = option("How much.", type=SIZE)
    launch: Launch = use(spark_options)


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of one."""

    source: str = use(click.argument("source"))
    dry_run: bool = option("Do nothing.")
    names: tuple[str, ...] = option("Whose.", "--name", default=("a",), show_default=True)


def call(*arguments: str) -> tuple[list[Options], str]:
    """Return what a command with these options got, and its output."""
    got: list[Options] = []

    @click.command()
    @options_from(Options)
    def command(options: Options) -> None:
        got.append(options)

    return got, CliRunner().invoke(command, arguments).output


def test_fields_give_the_options_of_a_command() -> None:
    """Names and types of fields give the options, and the command gets one value; defaults are those of the options."""
    assert call("x")[0] == [Options(source="x", dry_run=False, names=("a",), size=None, launch=Launch())]
    given = call("x", "--dry-run", "--name", "b", "--name", "c", "--size", "2kb", "--conf", "k=v")[0]
    expected = Options(source="x", dry_run=True, names=("b", "c"), size=2000, launch=Launch(conf=(("k", "v"),)))
    assert given == [expected]
    assert "--names" in call("x", "--names", "b")[1]


def test_help_shows_the_options_of_a_command_before_common_ones() -> None:
    """Who reads the help is there for this command."""
    shown = call("--help")[1]
    assert [shown.index(name) for name in ("--dry-run", "--name", "--size", "--master")] == sorted(
        shown.index(name) for name in ("--dry-run", "--name", "--size", "--master")
    )


@pytest.mark.parametrize(
    ("options", "own", "further"),
    [
        (EncryptOptions, {"table", "path", "avro_schema"}, (RunOptions,)),
        (BackfillOptions, {"tables", "databases", "path", "html"}, (RunOptions, PassOptions)),
        (
            RotateOptions,
            {"tables", "databases", "key_id", "successor", "keep_version", "compromised"},
            (RunOptions, PassOptions),
        ),
    ],
)
def test_every_option_of_a_command_is_one_of_its_run(options: Any, own: set[str], further: tuple[Any, ...]) -> None:
    """No option is lost on the way for having another name: what the command itself does not read, a run does."""
    of_runs = {known.name for kind in further for known in fields(kind)}
    assert {known.name for known in fields(options)} - of_runs == OWN | own
