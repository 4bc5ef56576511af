"""Commands that work on rows, or may have to, never start a JVM with one compiler alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkcrypt.cli.frame import command_context
from sparkcrypt.cli.main import cli
from sparkcrypt.errors import ConfigError

POLICY = """
version: 1
key_service: {{type: local, path: {folder}/keys}}
run_state: hdfs://nowhere/state
footer: {{key: footer, mode: encrypted}}
audit: {{key: audit}}
untagged: plaintext
tags: {{pii: {{key: pii}}}}
"""
BULK = [
    "encrypt --table d.t",
    "encrypt --table d.t --engine spark",
    "encrypt --table d.t --dry-run",
    "backfill --database d",
    "backfill --database d --engine spark",
    "backfill expire --table d.t --older-than 1d",
    "backfill rollback 20260101T000000-00000000 --table d.t",
    "verify --table d.t",
    "rotate --key pii",
    "status --fresh",
    "index refresh --table d.t",
    "tags suggest d.t",
    "backfill",
    "backfill expire --older-than 1d",
]
SHORT = [
    "tags show d.t",
    "tags set d.t c pii",
    "plan --table d.t",
    "plan --database d",
    "plan",
    "lineage",
    "keys check",
    "keys status",
    "backfill status --table d.t",
    "status",
    "audit show --table d.t",
    "lineage --database d",
]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
    """Whether each session that a command asks for is a short one; no session starts."""
    found: list[bool] = []

    def refuse(app_name: str, *, short: bool = False, **launch: object) -> None:
        found.append(short)
        raise ConfigError("no session here")

    monkeypatch.setattr(command_context, "spark_session", refuse)
    (tmp_path / "policy.yaml").write_text(POLICY.format(folder=tmp_path))
    monkeypatch.chdir(tmp_path)
    return found


def run(words: str) -> str:
    """Run a command with the policy, and return what it printed."""
    policy = [] if words.startswith("tags") else ["--policy", "policy.yaml"]
    done = CliRunner().invoke(cli, [*words.split(), *policy])
    return f"{done.output} {done.exception!r}"


@pytest.mark.parametrize("words", BULK)
def test_command_that_may_work_on_rows(started: list[bool], words: str) -> None:
    """Its JVM has all compilers from the start: a unit may fall back to Spark's engine at any time."""
    said = run(words)
    assert started == [False], said


@pytest.mark.parametrize("words", SHORT)
def test_command_that_reads_no_rows(started: list[bool], words: str) -> None:
    """Its JVM ends with it."""
    said = run(words)
    assert started == [True], said
