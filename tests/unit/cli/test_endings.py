"""How commands end: exit codes, messages and reports."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from sparkcrypt import errors
from sparkcrypt.cli.frame.command import EXIT_CODES, Command
from sparkcrypt.cli.frame.command_context import Document, failed_report
from sparkcrypt.cli.frame.options import POLICY_VARIABLE
from sparkcrypt.cli.main import SECTIONS, cli
from sparkcrypt.errors import ConfigError, PlanError, SparkcryptError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy
from sparkcrypt.spark.jvm.failures import find_carried_error, short_text
from tests.services.installed import ROOT

from .conftest import run

CODES = {
    "SparkcryptError": 1,
    "ConfigError": 78,
    "PlanError": 65,
    "PredicateError": 64,
    "KeyServiceError": 69,
    "KeyNotFoundError": 69,
    "KeyRetiredError": 69,
    "KeyServiceUnavailableError": 69,
    "KeyAccessDeniedError": 77,
    "BridgeError": 70,
    "FormatError": 66,
    "UnsupportedFileError": 66,
    "StorageError": 71,
    "VerificationError": 74,
    "SourceChangedError": 74,
    "RunConflictError": 75,
}


def raising(error: BaseException) -> click.Command:
    """Return a command that raises."""

    @click.command(cls=Command)
    @click.option("--json", "as_json", is_flag=True)
    def command(as_json: bool) -> None:
        raise error

    return command


def every_error() -> Iterator[type[SparkcryptError]]:
    """Yield each class of the tree."""
    pending = [SparkcryptError]
    while pending:
        found = pending.pop()
        pending.extend(found.__subclasses__())
        yield found


def test_the_table_of_codes_is_whole() -> None:
    """No error class is without its exit code in this test."""
    assert {error.__name__ for error in every_error() if error.__module__ == errors.__name__} == set(CODES)


@pytest.mark.parametrize("name", CODES)
def test_every_error_ends_with_the_code_of_its_class(name: str) -> None:
    """An error's class decides the exit code, and its message goes to stderr alone."""
    done = run(command=raising(getattr(errors, name)("key 'a' is not there")))
    assert (done.code, done.output, done.errors) == (CODES[name], "", "error: key 'a' is not there\n")


@pytest.mark.parametrize("name", CODES)
def test_errors_are_json_too(name: str) -> None:
    """With --json an error is an object on stdout, besides the message on stderr."""
    done = run("--json", command=raising(getattr(errors, name)("no")))
    assert done.document == {"error": {"type": name, "message": "no"}}
    assert done.errors == "error: no\n"


def test_ctrl_c_ends_with_130() -> None:
    """An interrupted command ends as shells expect, without a trace."""
    done = run(command=raising(KeyboardInterrupt()))
    assert done.code == 130
    assert done.errors.strip() == "error: interrupted"


def test_an_unexpected_error_is_short_and_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing foresaw ends with 1, in one line that names the variable which shows the trace."""
    monkeypatch.delenv("SPARKCRYPT_TRACEBACK", raising=False)
    done = run(command=raising(ZeroDivisionError("by\nzero")))
    assert done.code == 1
    assert done.errors == "error: ZeroDivisionError: by; set SPARKCRYPT_TRACEBACK=1 to see where it happened\n"


def test_the_trace_is_shown_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARKCRYPT_TRACEBACK=1 shows where an error was raised, of a known class too."""
    monkeypatch.setenv("SPARKCRYPT_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in run(command=raising(errors.PlanError("no"))).errors


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nosuch",),
        ("--nosuch",),
        ("keys",),
        ("keys", "create", "--policy", "p"),
        ("keys", "create", "pii"),
        ("plan", "--policy", "p", "--database", "d", "--out", "f"),
        ("plan", "--policy", "p", "--schema", "f", "--files"),
        ("plan", "--policy", "p", "--path", "d", "--exclude", "t"),
        ("encrypt", "--policy", "p", "--plan", "f", "--table", "t"),
        ("encrypt", "--policy", "p", "--plan", "f", "--purge"),
        ("plan", "--policy", "p", "--table", "t", "--path", "d"),
        ("plan", "--policy", "p", "--table", "t", "--partition-column", "day"),
        ("encrypt", "--policy", "p"),
        ("encrypt", "--policy", "p", "--table", "t", "--path", "d"),
        ("encrypt", "--policy", "p", "--table", "t", "--conf", "novalue"),
        ("verify", "--policy", "p"),
        ("verify", "--policy", "p", "--table", "t", "file.parquet"),
        ("tags", "show"),
        ("tags", "set", "t", "c"),
        ("inspect",),
        ("doctor",),
        ("backfill", "status", "--policy", "p"),
        ("backfill", "--policy", "p", "--path", "d", "--select", "tag:pii"),
        ("backfill", "expire", "--policy", "p", "--path", "d", "--exclude", "t"),
        ("audit", "show", "--policy", "p"),
    ],
    ids=" ".join,
)
def test_usage_errors_end_with_64(arguments: tuple[str, ...]) -> None:
    """A wrong call is 64 and never 2, which is drift; nothing is on stdout."""
    done = run(*arguments)
    assert (done.code, done.output) == (64, "")
    assert "error: " in done.errors
    assert "--help" in done.errors


def test_usage_errors_are_json_too() -> None:
    """A wrong call with --json gives an object as well."""
    assert run("plan", "--json", "--nosuch").document["error"]["type"] == "UsageError"


def test_json_after_the_end_of_options_is_no_option() -> None:
    """An argument --json behind -- asks for nothing."""
    assert run("inspect", "--", "--json").output == ""


def test_help_shows_examples_as_lines() -> None:
    """Every example keeps a line of its own in the help."""
    done = run("keys", "create", "--help")
    assert done.code == 0
    assert "\n    sparkcrypt keys create footer pii finance --policy policy.yaml\n" in done.output


def test_every_command_has_json_and_an_example() -> None:
    """No command lacks --json, a first line and an example that calls it."""
    pending: list[tuple[tuple[str, ...], click.Command]] = [((name,), below) for name, below in cli.commands.items()]
    seen = 0
    while pending:
        names, command = pending.pop()
        if isinstance(command, click.Group):
            pending += [((*names, name), below) for name, below in command.commands.items()]
            continue
        seen += 1
        assert any("--json" in option.opts for option in command.params), names
        assert f"sparkcrypt {' '.join(names)} " in (command.help or ""), names
    assert seen >= 20


REFUSED = """An error occurred while calling o88.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Something(Some.scala:1)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed
Caused by: org.apache.parquet.crypto.ParquetCryptoRuntimeException: KeyNotFoundError: key 'pii' is not there; make it
\tat io.sparkcrypt.Refusal.of(Refusal.java:1)
"""


def test_what_the_jar_refused_ends_as_if_it_had_been_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours inside Spark's exceptions has its own exit code and message."""
    done = run("--json", command=raising(RuntimeError(REFUSED)))
    assert done.code == 69
    assert done.document == {"error": {"type": "KeyNotFoundError", "message": "key 'pii' is not there; make it"}}


def test_a_denied_key_inside_spark_is_a_denied_key() -> None:
    """Parquet's own class for a denied key is understood as well."""
    text = "Caused by: org.apache.parquet.crypto.KeyAccessDeniedException: KeyAccessDeniedError: key 'pii': refused"
    found = find_carried_error(RuntimeError(text))
    assert isinstance(found, errors.KeyAccessDeniedError)


def test_other_java_errors_are_not_taken_for_ours() -> None:
    """A message that only mentions an error's name is no error of ours."""
    assert find_carried_error(RuntimeError("Caused by: java.lang.IllegalStateException: KeyNotFoundError: no")) is None


def test_a_java_error_is_told_by_its_innermost_cause() -> None:
    """Of a page of Java the last cause is shown, not py4j's first line."""
    assert short_text(RuntimeError("An error occurred\n: a.B: outer\n\tat x\nCaused by: c.D: inner")) == "c.D: inner"
    assert short_text(RuntimeError("An error occurred\n: a.B: outer\n\tat x")) == "a.B: outer"
    assert len(short_text(RuntimeError("x" * 5000))) == 400


def test_an_error_is_found_in_what_another_was_raised_from() -> None:
    """The chain of Python exceptions is looked through."""
    try:
        try:
            raise RuntimeError(REFUSED)
        except RuntimeError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        assert isinstance(find_carried_error(error), errors.KeyNotFoundError)


def test_json_holds_any_script() -> None:
    """Messages of any script stay readable in JSON."""
    done = run("--json", command=raising(errors.PlanError("column größe")))
    assert "größe" in done.output
    assert json.loads(done.output)["error"]["message"] == "column größe"


def _kinds(kind: type[SparkcryptError]) -> Iterator[type[SparkcryptError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def test_every_exit_code_is_listed_and_every_help_says_where() -> None:
    """Each error's code, and those that are no errors, are in one table, which help and page show."""
    assert {kind.exit_code for kind in _kinds(SparkcryptError)} <= set(EXIT_CODES)
    documented = re.findall(r"^\| (\d+) \| ", (ROOT / "docs/exit-codes.md").read_text(), re.MULTILINE)
    assert [int(code) for code in documented] == list(EXIT_CODES) == sorted(EXIT_CODES)
    shown = run("--help").output
    lines = re.findall(r"^ +(\d+)  (\S.*)$", shown[shown.index("Exit codes:") :], re.MULTILINE)
    assert lines == [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    for words in (["backfill"], ["backfill", "expire"], ["keys", "create"]):
        assert "docs/exit-codes.md" in run(*words, "--help").output, words


def test_help_lists_commands_in_the_order_of_their_use() -> None:
    """Each command is once under a heading, and -h is --help everywhere."""
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(cli.commands)
    shown = run("-h").output
    assert shown == run("--help").output
    names = re.findall(r"^  ([a-z]+) {2,}[A-Z]", shown, re.MULTILINE)
    assert names == [name for names in SECTIONS.values() for name in names]
    for words in (["keys"], ["keys", "create"], ["plan"]):
        short, long = run(*words, "-h"), run(*words, "--help")
        assert (short.code, short.output) == (0, long.output), words


def test_no_log_line_controls_a_terminal() -> None:
    """Names in the lines of a process that has no logging of its own are shown without what a terminal obeys."""
    script = (
        "import click, logging\n"
        "from sparkcrypt.cli.frame.command import run_main\n"
        "command = click.command()(lambda: logging.getLogger('sparkcrypt.any').warning('%s', 'a\\x1b[2Jb'))\n"
        "raise SystemExit(run_main(command.main, []))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.endswith("Z warning: a\N{REPLACEMENT CHARACTER}[2Jb\n")


def test_tab_in_a_policy_is_named(tmp_path: Path) -> None:
    """With its line and what stands in its place, since editors do not show it."""
    (tmp_path / "policy.yaml").write_text("version: 1\ntags:\n\tpii: {key: pii}\n")
    with pytest.raises(ConfigError, match=r"policy.yaml:3: not YAML: a tab; YAML is indented by spaces alone: replace"):
        load_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize("command", ["plan --table t", "encrypt --table t", "backfill --table t", "keys create pii"])
def test_forgotten_policy_is_told_what_it_is_for(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """And which file of the present folder may be it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    (tmp_path / "a.yaml").mkdir()
    (tmp_path / "b.yml").write_text("version: 1\n")
    found = run(*command.split())
    assert found.code == 64
    assert "Missing option '--policy'" in found.errors
    assert "says which key each tag has: --policy FILE, or SPARKCRYPT_POLICY for all" in found.errors
    assert "; policy.yaml in this folder may be it" in found.errors
    policy.unlink()
    assert "; such as policy.yaml" in run(*command.split()).errors


def test_key_that_the_policy_does_not_name_is_made_with_a_warning(policy: Path, keys: KeyService) -> None:
    """A misspelt id would stay without use, and nobody would see it."""
    made = run("keys", "create", "../x", "contact-2026-01", "--policy", policy)
    assert (made.code, made.output) == (0, "../x: made\ncontact-2026-01: made\n")
    (line,) = [line for line in made.errors.splitlines() if line.startswith("warning:")]
    assert "names no key '../x', so nothing is written under it; it names footer, pii" in line


def test_copied_policy_names_another_key_directory(policy: Path, keys: KeyService, tmp_path: Path) -> None:
    """Every answer names that directory and why it is another; keys that are made there are told to be new ones."""
    (tmp_path / "copy").mkdir()
    copy = shutil.copy(policy, tmp_path / "copy" / "policy.yaml")
    shown = run("keys", "show", "pii", "--policy", copy)
    why = "a relative path counts from the policy file's folder, so a copy of the policy elsewhere names another one"
    assert (shown.code, why in shown.errors, f"{tmp_path}/copy/keys" in shown.errors) == (69, True, True)
    made = run("keys", "create", "pii", "--policy", copy)
    assert made.code == 0
    assert f"{tmp_path}/copy/keys is a new key directory: keys of another" in made.errors


def test_no_store_where_index_show_looks(tmp_path: Path) -> None:
    """It names the command that makes one, and asks for no data file."""
    for folder in (tmp_path, tmp_path / "nowhere"):
        found = run("index", "show", "--path", folder)
        assert (found.code, "no index is there; `sparkcrypt index create`" in found.errors) == (
            78, True,
        )  # fmt: skip
        assert "data file" not in found.errors


@pytest.mark.parametrize("words", [["email"], ["email=pii", "pay"], ["email", "pii", "pay"], ["email,pay", "pii"]])
def test_tags_are_set_by_column_and_tag_or_by_pairs(words: list[str]) -> None:
    """Anything else is a usage error, before Spark is started, that shows both forms or the pairs to give."""
    found = run("tags", "set", "sales.t", *words)
    assert found.code == 64
    assert "COLUMN=TAG" in found.errors or "email=TAG pay=TAG" in found.errors


def test_older_airflow_is_told_what_is_needed(tmp_path: Path) -> None:
    """In place of a module that is not found, as where the provider for Spark is not installed."""
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").touch()
    (tmp_path / "airflow" / "exceptions.py").write_text("AirflowException = Exception\n")
    done = subprocess.run(
        [sys.executable, "-c", "from sparkcrypt.airflow import SparkcryptOperator"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: sparkcrypt.airflow needs Airflow 2.10 or later" in done.stderr, done.stderr


class LocalPlace:
    """A place whose files are local."""

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        Path(path).write_text(text)


def fail(report: Path, page: Any) -> None:
    """Fail with a plan's error under both reports."""
    with failed_report(LocalPlace(), str(report), "db.t", page=page, kind="k"):  # type: ignore[arg-type]  # all it uses
        raise PlanError("no such column")


def test_both_reports_tell_the_error(tmp_path: Path) -> None:
    """JSON and page are of one document, and the error goes on."""
    seen: list[Document] = []

    def made(document: Document) -> str:
        seen.append(document)
        return "<html>"

    with pytest.raises(PlanError, match="no such column"):
        fail(tmp_path / "r.json", (str(tmp_path / "r.html"), made))
    document = json.loads((tmp_path / "r.json").read_text())
    assert document == seen[0]
    assert document["error"] == {"type": "PlanError", "message": "no such column", "exit_code": 65}
    assert (document["outcome"], document["table"]) == ("failed", "db.t")
    assert (tmp_path / "r.html").read_text() == "<html>"


def test_page_that_cannot_be_made_does_not_hide_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A template's own failure, or a folder that is not there, is told beside the error that matters."""

    def broken(_: Document) -> str:
        raise ValueError("no template")

    with pytest.raises(PlanError, match="no such column"):
        fail(tmp_path / "nowhere" / "r.json", (str(tmp_path / "r.html"), broken))
    said = capsys.readouterr().err
    assert "r.json could not be written" in said and "r.html could not be written: ValueError: no template" in said
