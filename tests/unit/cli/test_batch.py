"""`sparkcrypt batch`: commands end and print as alone, the first failure ends it, and one session serves them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt.cli.main import cli
from sparkcrypt.errors import ConfigError
from sparkcrypt.spark.setup import command_session

from .conftest import run

SCHEMA = '{"type": "struct", "fields": [{"name": "ssn", "type": "string", "nullable": true, "metadata": {}}]}'


@pytest.fixture
def folder(policy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: a policy, and a schema that is planned without Spark."""
    (policy.parent / "a schema.json").write_text(SCHEMA)
    monkeypatch.chdir(policy.parent)
    return policy.parent


PLAN = ("plan", "--schema", "a schema.json", "--policy", "policy.yaml")
WRITTEN = "plan --schema 'a schema.json' --policy policy.yaml"


def test_commands_print_what_they_print_alone(folder: Path) -> None:
    """One after the other, by a file or stdin; words are quoted as in a shell, comments and empty lines are skipped."""
    text = f"# every night\n\n{WRITTEN} --json  # with a comment\nsparkcrypt {WRITTEN}\n"
    (folder / "nightly.txt").write_text(text)
    alone = [run(*PLAN, "--json"), run(*PLAN)]
    done, of_stdin = run("batch", "nightly.txt"), CliRunner().invoke(cli, ["batch", "-"], input=text)
    assert done.output == alone[0].output + alone[1].output == of_stdin.stdout
    assert (done.code, of_stdin.exit_code, done.errors) == (0, 0, "")
    assert "ssn" in alone[1].output


def test_json_is_that_of_each_command(folder: Path) -> None:
    """Whether a line asks for it or not, and also where it ends its options, after which --json would be a file."""
    (folder / "nightly.txt").write_text(f"{WRITTEN}\n{WRITTEN} --json\ninspect -- nowhere.parquet\n")
    plan, inspect = run(*PLAN, "--json"), run("inspect", "--json", "nowhere.parquet")
    assert run("batch", "nightly.txt", "--json").output == plan.output * 2 + inspect.output
    assert "error" in inspect.document


@pytest.mark.parametrize("more", [(), ("--keep-going",)], ids=["", "keep going"])
def test_first_failure_ends_it_with_its_code(folder: Path, more: tuple[str, ...]) -> None:
    """It is named on stderr after its own message; those after it are run where that is asked for."""
    (folder / "nightly.txt").write_text(
        f"{WRITTEN}\nplan --schema nowhere --policy policy.yaml\ninspect nowhere.parquet\n{WRITTEN}\n"
    )
    plan, failure = run(*PLAN), run("plan", "--schema", "nowhere", "--policy", "policy.yaml")
    done = run("batch", "nightly.txt", *more)
    assert done.code == failure.code != 0
    assert done.output.count(plan.output) == (2 if more else 1)
    named = f"{failure.errors}nightly.txt, line 2: plan --schema ended with {failure.code}\n"
    assert done.errors.startswith(named)
    assert (done.errors == named) is not bool(more)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("plna --table d.t", "'plna'"),
        ("batch other.txt", "'batch'"),
        ("plan --table 'd.t", "No closing quotation"),
    ],
)
def test_line_that_is_no_command_is_found_before_any_is_run(folder: Path, line: str, word: str) -> None:
    """The usage error names the line and what is allowed."""
    (folder / "nightly.txt").write_text(f"{WRITTEN}\n{line}\n")
    done = run("batch", "nightly.txt")
    assert (done.code, done.output) == (64, "")
    assert "nightly.txt, line 2" in done.errors and word in done.errors and "nothing was run" in done.errors


def test_file_that_cannot_be_read(folder: Path) -> None:
    """A usage error, as of a wrong word."""
    done = run("batch", "nowhere.txt")
    assert done.code == 64
    assert "nowhere.txt: cannot be read (No such file or directory)" in done.errors


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How each session was started; commands that get one fail by it."""
    found: list[dict[str, Any]] = []

    @contextmanager
    def start(app_name: str, **how: Any) -> Iterator[object]:
        found.append({"app_name": app_name, **how})
        yield object()

    monkeypatch.setattr(command_session, "_own_session", start)
    return found


def test_one_session_serves_all_and_has_every_compiler(folder: Path, started: list[dict[str, Any]]) -> None:
    """The first command that needs one starts it, as the batch says, though it reads no rows; another has its own."""
    (folder / "nightly.txt").write_text(f"{WRITTEN}\ntags show d.t\ntags show d.u\nencrypt --table d.t\n")
    run("batch", "nightly.txt", "--keep-going", "--master", "local[1]", "--conf", "a=b")
    expected = {"app_name": "sparkcrypt batch", "master": "local[1]", "conf": {"a": "b"}, "verbose": False}
    assert started == [{**expected, "short": False}]
    run("tags", "show", "d.t")
    assert [how["short"] for how in started] == [False, True]


@pytest.mark.parametrize("setting", ["--master local[1]", "--conf a=b", "--verbose"])
def test_command_with_settings_of_its_own(folder: Path, started: list[dict[str, Any]], setting: str) -> None:
    """They would have no effect on a session that others share, so the command is refused."""
    (folder / "nightly.txt").write_text(f"tags show d.t {setting}\n")
    done = run("batch", "nightly.txt")
    assert done.code == ConfigError.exit_code
    assert "give them to `sparkcrypt batch`" in done.errors
    assert started == []


def test_batch_without_need_of_spark_starts_none(folder: Path, started: list[dict[str, Any]]) -> None:
    """As no command of it would alone."""
    (folder / "nightly.txt").write_text(f"{WRITTEN}\n")
    assert run("batch", "nightly.txt").code == 0
    assert started == []
