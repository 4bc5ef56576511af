"""`sparkcrypt backfill` and `plan --database`: exit codes, reports, pages, and what a person reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkcrypt.cli.main import cli
from sparkcrypt.spark.tagging import set_tags
from tests.spark.support import SECRET, Lake, make_policy, rows_of

pytestmark = pytest.mark.spark


@contextmanager
def active(lake: Lake) -> Iterator[None]:
    """Make the lake's session the one that commands find."""
    sessions = lake.spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    sessions.setActiveSession(lake.spark._jsparkSession)
    yield
    sessions.clearActiveSession()


@pytest.fixture
def policy(lake: Lake) -> str:
    """A policy file, and two tables of one tagged column."""
    made = make_policy(lake.root / "p")
    with lake.stranger() as stranger:
        for name in ("a", "b"):
            stranger.sql(f"CREATE TABLE {name} (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p)")
            stranger.sql(f"INSERT INTO {name} VALUES (1, '{SECRET}-1', 0), (2, '{SECRET}-2', 1)")
    for name in ("a", "b"):
        set_tags(lake.spark, name, {"email": ["pii"]}, made)
    return str(lake.root / "p" / "policy.yaml")


def run(lake: Lake, *arguments: str) -> Result:
    """Run a command in this JVM."""
    with active(lake):
        return CliRunner().invoke(cli, list(arguments))


def test_database_from_drift_to_done(lake: Lake, policy: str, tmp_path: Path) -> None:
    """The plan exits with 2, the pass with 0 and a report in two forms, and then the plan with 0."""
    chosen = ["--database", lake.database, "--policy", policy]
    plan = run(lake, "plan", *chosen)
    assert plan.exit_code == 2, plan.output
    assert "2 tables, 4 files of 4" in plan.output and "encrypt 2 (plaintext: 2)" in plan.output
    assert "by earlier runs" not in plan.output
    dry = run(lake, "backfill", *chosen, "--dry-run", "--json")
    assert dry.exit_code == 2
    assert json.loads(dry.stdout)["totals"]["files_left"] == 4
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    done = run(lake, "backfill", *chosen, "--report", str(report), "--html", str(page))
    assert done.exit_code == 0, done.output
    document = json.loads(report.read_text())
    assert (document["kind"], document["outcome"], document["totals"]["files_rewritten"]) == (
        "sparkcrypt backfill", "done", 4,
    )  # fmt: skip
    assert f"{lake.name('a')}" in page.read_text()
    assert run(lake, "plan", *chosen).exit_code == 0
    listed = run(lake, "backfill", "list", "--policy", policy, "--json")
    assert [one["state"] for one in json.loads(listed.stdout)] == ["done", "done"]
    run_id = document["tables"][0]["run_id"]
    back = run(lake, "backfill", "rollback", run_id, "--table", lake.name("a"), "--policy", policy, "--json")
    assert (back.exit_code, json.loads(back.stdout)["units"]) == (0, ["p=0", "p=1"])
    again = run(lake, "plan", *chosen)
    assert again.exit_code == 2
    assert "2 files of 4" in again.output and "by earlier runs" in again.output
    expired = run(lake, "backfill", "expire", "--table", lake.name("b"), "--policy", policy)
    assert expired.exit_code == 0 and "2 files" in expired.output
    verified = run(lake, "verify", "--table", lake.name("b"), "--policy", policy, "--manifest", "--complete")
    assert verified.exit_code == 0, verified.output


def test_quarantined_unit_ends_with_74(lake: Lake, policy: str, tmp_path: Path) -> None:
    """What could not be done is named on the terminal and in the report, and the exit code says so."""
    next((lake.path("a") / "p=0").glob("part-*")).write_bytes(b"PAR1 nothing PAR1")
    report = tmp_path / "report.json"
    done = run(lake, "backfill", "--table", lake.name("*"), "--policy", policy, "--report", str(report))
    assert done.exit_code == 74, done.output
    assert f"left as it was: {lake.name('a')}: p=0: VerificationError" in done.output
    document = json.loads(report.read_text())
    assert (document["outcome"], document["totals"]["quarantined"]) == ("incomplete", 1)
    assert document["totals"]["files_rewritten"] == 3


def test_budget_is_told_and_leaves_the_rest(lake: Lake, policy: str) -> None:
    """A pass that stops at its budget ends well, says what is left, and `status` says that it goes on."""
    command = ["backfill", "--table", lake.name("a"), "--policy", policy, "--max-bytes", "1B", "--parallelism", "1"]
    done = run(lake, *command)
    assert done.exit_code == 0, done.output
    assert "stopped at budget" in done.output and "left: 1 unit" in done.output
    status = run(lake, "backfill", "status", "--table", lake.name("a"), "--policy", policy)
    assert "paused" in status.output and "its budget was spent" in status.output
    assert run(lake, *command).exit_code == 0
    assert run(lake, "plan", "--table", lake.name("a"), "--policy", policy).exit_code == 0
    assert len(rows_of(lake.spark.table("a"))) == 2


def test_failed_pass_is_reported_in_both_forms(lake: Lake, policy: str, tmp_path: Path) -> None:
    """A pass that cannot begin leaves a report and a page that say why."""
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    done = run(
        lake, "backfill", "--table", "nosuch", "--policy", policy, "--report", str(report), "--html", str(page)
    )  # fmt: skip
    assert done.exit_code == 65
    document = json.loads(report.read_text())
    assert (document["outcome"], document["error"]["type"]) == ("failed", "PlanError")
    assert "nosuch" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "t"], "Missing option '--policy'"),
        (["--policy", "p"], "give --table or --database, or else --path"),
        (["--policy", "p", "--table", "t", "--path", "d"], "give --table or --database, or else --path"),
        (["--policy", "p", "--table", "t", "--max-bytes", "lots"], "'lots' is not a size"),
        (["--policy", "p", "--table", "t", "--max-duration", "0h"], "'0h' is not a duration"),
        (["--policy", "p", "--table", "t", "--priority", "tag,luck"], "'luck' is not one of tag, size, age"),
        (["--policy", "p", "--table", "t", "--parallelism", "0"], "0 is not in the range"),
        (["--table", "t", "list", "--policy", "p"], "options go after list"),
    ],
)
def test_wrong_calls_are_usage_errors(arguments: list[str], said: str) -> None:
    """Each is told with what is allowed, before Spark is started."""
    done = CliRunner().invoke(cli, ["backfill", *arguments])
    assert done.exit_code == 64
    assert said in done.output
