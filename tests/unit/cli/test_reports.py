"""Reports that commands write for whoever starts them as jobs: the kind, the outcome, and the result or the error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.runs.keys.check_keys import CheckedKeys, CheckedTable, Unopened
from sparkcrypt.runs.old_folders.expire import Expired, ExpiryOptions
from sparkcrypt.runs.old_folders.problems import Problem
from sparkcrypt.runs.passes.passes import ManyExpired
from sparkcrypt.runs.passes.report import TableError
from sparkcrypt.runs.passes.resolve_problem import Resolved

from .conftest import run

COMMANDS = {
    "backfill expire --table sales.t": "sparkcrypt expire",
    "backfill resolve 1 --table sales.t --keep new --reason ours": "sparkcrypt resolve",
    "keys check --table sales.t": "sparkcrypt keys check",
    "status": "sparkcrypt status",
    "verify --table sales.t": "sparkcrypt verify",
}


def expired(*, refused: Mapping[str, str] = {}, dry_run: bool = False) -> Expired:  # it is not changed
    """Return the result of an expiry."""
    return Expired(
        table="sales.t",
        run_ids=("r",),
        folders=("/old",),
        files=2,
        total_bytes=9,
        carried=0,
        superseded={},
        refused=refused,
        summaries=(),
        homes={},
        younger=0,
        dry_run=dry_run,
        unread=(),
        unpinned=(),
    )


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a command is to write its report; no session starts."""
    monkeypatch.setattr(Workplace, "spark", property(lambda _: SimpleNamespace()))
    return tmp_path / "report.json"


@pytest.mark.parametrize(("words", "kind"), COMMANDS.items())
def test_a_command_that_fails_says_so_in_its_report(words: str, kind: str, tmp_path: Path) -> None:
    """The policy is missing; a job's exit code may be lost, its report is not."""
    file = tmp_path / "report.json"
    done = run(*words.split(), "--policy", tmp_path / "none.yaml", "--report", file)
    written = json.loads(file.read_text())
    assert (written["kind"], written["version"], written["outcome"]) == (kind, 1, "failed")
    assert (
        (written["error"]["type"], written["error"]["exit_code"]) == ("ConfigError", done.code) == ("ConfigError", 78)
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_report_that_cannot_be_written_is_refused_before(words: str, policy: Path, tmp_path: Path) -> None:
    """Before the work is done."""
    done = run(*words.split(), "--policy", policy, "--report", tmp_path / "none" / "report.json")
    assert done.code == 78 and "is not there or may not be written to" in done.errors


@pytest.mark.parametrize(
    ("words", "found", "outcome", "code"),
    [
        ((), expired(), "done", 0),
        ((), expired(refused={"p=1": "a problem is open"}), "incomplete", 74),
        (("--dry-run",), expired(refused={"p=1": "a problem is open"}, dry_run=True), "dry run", 74),
    ],
)
def test_expiry_of_one_table(
    words: tuple[str, ...],
    found: Expired,
    outcome: str,
    code: int,
    report: Path,
    policy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stdout has the table alone, the report is of the form of many."""
    asked: list[ExpiryOptions] = []

    def expire(*_: object, options: ExpiryOptions, **__: object) -> Expired:
        asked.append(options)
        return found

    monkeypatch.setattr("sparkcrypt.runs.old_folders.expire.expire_run", expire)
    line = ["backfill", "expire", "--table", "sales.t", *words, "--policy", policy, "--report", report, "--json"]
    done = run(*line)
    assert (done.code, done.document) == (code, found.to_dict())
    written = json.loads(report.read_text())
    assert (written["kind"], written["outcome"], written["tables"]) == ("sparkcrypt expire", outcome, [found.to_dict()])
    run(*line, "--run", "r")
    run(*line, "--run", "r", "--older-than", "1h")
    assert [options.older_than_seconds for options in asked] == [86400.0, 0.0, 3600.0]


@pytest.mark.parametrize("chosen", [("--table", "sales.*"), ("--table", "a.t", "--table", "b.t"), ("--database", "s")])
def test_expiry_of_many_tables(
    chosen: tuple[str, ...], report: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that failed makes it incomplete; a run goes with one table alone."""
    found = ManyExpired((expired(),), failed=(TableError("s.t", "PlanError", "no"),))
    monkeypatch.setattr("sparkcrypt.runs.passes.passes.expire_many", lambda *_, **__: found)
    done = run("backfill", "expire", *chosen, "--policy", policy, "--report", report, "--json")
    assert (done.code, done.document) == (74, found.to_dict())
    assert json.loads(report.read_text())["outcome"] == "incomplete"
    assert run("backfill", "expire", *chosen, "--run", "r", "--policy", policy).code == 64


@pytest.mark.parametrize(
    ("unopened", "outcome", "code"), [([], "done", 0), ([Unopened("f", "E", "m")], "incomplete", 74)]
)
def test_check_of_keys(
    unopened: list[Unopened], outcome: str, code: int, report: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be opened is in the report too."""
    found = CheckedKeys((CheckedTable("sales.t", unopened=unopened),), {})
    monkeypatch.setattr("sparkcrypt.runs.keys.check_keys.check_keys", lambda *_, **__: found)
    done = run("keys", "check", "--table", "sales.t", "--policy", policy, "--report", report)
    written = json.loads(report.read_text())
    assert (done.code, written["outcome"], written["tables"]) == (code, outcome, found.to_dict()["tables"])


def test_resolution(report: Path, policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision and its reason are in the report."""
    found = Resolved(Problem("1", "sales.t", "r", "p=1", "k", "/old"), "new", "ours", None)
    monkeypatch.setattr("sparkcrypt.runs.passes.resolve_problem.resolve_problem", lambda *_: found)
    line: list[Any] = [
        "--table",
        "sales.t",
        "--keep",
        "new",
        "--reason",
        "ours",
        "--policy",
        policy,
        "--report",
        report,
    ]
    assert run("backfill", "resolve", "1", *line).code == 0
    written = json.loads(report.read_text())
    assert (written["outcome"], written["keep"], written["reason"]) == ("done", "new", "ours")


def test_status(report: Path, policy: Path) -> None:
    """The report is the document that --json prints, but for its time."""
    done = run("status", "--policy", policy, "--report", report, "--json")
    assert {**json.loads(report.read_text()), "at": ""} == {**done.document, "at": ""}
