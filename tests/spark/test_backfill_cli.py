"""`sparkcrypt backfill` and `plan --database`: exit codes, reports, pages, and what a person reads."""

from __future__ import annotations

import gc
import io
import json
import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from sparkcrypt.cli.frame.progress import BarProgress
from sparkcrypt.cli.main import cli
from sparkcrypt.cli.runs import past_runs
from sparkcrypt.files.footers import Found
from sparkcrypt.runs.passes import units as run_survey
from sparkcrypt.runs.table.footers import DriverFooters
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.unit_survey import UnitSurvey, survey_unit
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.tags.model import tag_property
from tests.spark.sessions import run_command
from tests.spark.support import SECRET, Lake, make_policy, rows_of

pytestmark = pytest.mark.spark
backfill_command = import_module("sparkcrypt.cli.runs.backfill")


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


def unknown(lake: Lake, table: str) -> None:
    """Give a column a tag that the policy does not know."""
    catalog = Catalog(lake.spark)
    catalog.set_options(catalog.table(table), {tag_property(("id",)): "nosuch"})


def lost(lake: Lake, table: str) -> None:
    """Lose a table's tags, as ADD COLUMNS through Hive does."""
    catalog = Catalog(lake.spark)
    found = catalog.table(table)
    schema = json.loads(found.schema_json)
    columns = [{**field, "metadata": {}} for field in schema["fields"] if field["name"] != "p"]
    catalog.set_schema_metadata(found, json.dumps({**schema, "fields": columns}))
    catalog.unset_options(found, tuple(name for name in found.options if ".tags." in name))


def only_nothing(self: DriverFooters, sources: Sequence[SourceFile]) -> dict[str, Found]:
    """Read no footer."""
    assert not sources, "a footer was read"
    return {}


def test_database_from_drift_to_done(lake: Lake, policy: str, tmp_path: Path) -> None:
    """The plan exits with 2, the pass with 0 and a report in two forms, and then the plan with 0."""
    chosen = ["--database", lake.database, "--policy", policy]
    plan = run_command(lake, "plan", *chosen)
    assert plan.exit_code == 2, plan.output
    assert "2 tables, 4 files of 4" in plan.output and "encrypt 2 (plaintext: 2)" in plan.output
    assert "by earlier runs" not in plan.output
    dry = run_command(lake, "backfill", *chosen, "--dry-run", "--json")
    assert dry.exit_code == 2
    assert json.loads(dry.stdout)["totals"]["files_left"] == 4
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    done = run_command(lake, "backfill", *chosen, "--report", str(report), "--html", str(page))
    assert done.exit_code == 0, done.output
    document = json.loads(report.read_text())
    assert (document["kind"], document["outcome"], document["totals"]["files_rewritten"]) == (
        "sparkcrypt backfill", "done", 4,
    )  # fmt: skip
    assert f"{lake.name('a')}" in page.read_text()
    assert run_command(lake, "plan", *chosen).exit_code == 0
    listed = run_command(lake, "backfill", "list", "--policy", policy, "--json")
    assert [unit["state"] for unit in json.loads(listed.stdout)] == ["done", "done"]
    run_id = document["tables"][0]["run_id"]
    back = run_command(lake, "backfill", "rollback", run_id, "--table", lake.name("a"), "--policy", policy, "--json")
    assert (back.exit_code, json.loads(back.stdout)["units"]) == (0, ["p=0", "p=1"])
    again = run_command(lake, "plan", *chosen)
    assert again.exit_code == 2
    assert "2 files of 4" in again.output and "by earlier runs" in again.output
    expired = run_command(
        lake, "backfill", "expire", "--table", lake.name("b"), "--policy", policy, "--older-than", "0s"
    )
    assert expired.exit_code == 0 and "2 files" in expired.output
    verified = run_command(lake, "verify", "--table", lake.name("b"), "--policy", policy, "--manifest", "--complete")
    assert verified.exit_code == 0, verified.output


def test_plan_that_cannot_look_at_every_table_ends_with_74(lake: Lake, policy: str) -> None:
    """A table whose tags make no plan, and one that lost them, are told by name; drift elsewhere does not hide them."""
    assert run_command(lake, "backfill", "--table", lake.name("b"), "--policy", policy).exit_code == 0
    unknown(lake, "a")
    lost(lake, "b")
    for command in (["plan"], ["backfill", "--dry-run"]):
        both = run_command(lake, *command, "--database", lake.database, "--policy", policy)
        assert both.exit_code == 74, both.output
        assert f"failed: {lake.name('a')}: PlanError" in both.output
        assert f"refused: {lake.name('b')}: the tags of email are gone" in both.output
    document = json.loads(run_command(lake, "plan", "--table", lake.name("b*"), "--policy", policy, "--json").stdout)
    assert (document["outcome"], document["refused"][0]["table"]) == ("dry run", lake.name("b"))


def test_plan_of_one_table_tells_what_a_run_would_do(lake: Lake, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns and every difference, as ever; bytes, actions and time besides; footers that are known are not read."""
    chosen = ["--table", lake.name("a"), "--policy", policy]
    first = run_command(lake, "plan", *chosen)
    assert first.exit_code == 2, first.output
    assert "2 files in 2 units: 2 differ from the plan" in first.output
    assert re.search(r"\nto do: 2 files in 2 units, [0-9.]+ kB: encrypt 2\n$", first.output)
    document = json.loads(run_command(lake, "plan", *chosen, "--json").stdout)
    assert [column["column"] for column in document["columns"]] == ["id", "email"]
    assert {drift["kind"] for drift in document["drift"]} == {"plaintext"}
    assert (document["units_left"], document["estimated_seconds"], document["refused"]) == (2, None, None)
    assert [unit["actions"]["encrypt"]["files"] for unit in document["planned"]] == [1, 1]
    assert run_command(lake, "backfill", *chosen).exit_code == 0
    assert run_command(lake, "backfill", *chosen).output.startswith("nothing to do")  # it has read every new footer
    changed = run_command(lake, "tags", "set", lake.name("a"), "email", "fin", "--policy", policy)
    assert changed.exit_code == 0, changed.output
    monkeypatch.setattr(DriverFooters, "read", only_nothing)
    again = run_command(lake, "plan", *chosen)
    assert again.exit_code == 2, again.output
    assert re.search(r"\nto do: 2 files in 2 units, .*: re-key 2; about 0:00:[0-9]+, by earlier runs\n$", again.output)


def test_plan_of_one_table_that_a_run_would_refuse_ends_with_74(lake: Lake, policy: str) -> None:
    """Lost tags, and a folder that is not the table's own: the drift is told, and why no run would begin."""
    chosen = ["--table", lake.name("b"), "--policy", policy]
    assert run_command(lake, "backfill", *chosen).exit_code == 0
    lost(lake, "b")
    plan = run_command(lake, "plan", *chosen)
    assert plan.exit_code == 74, plan.output
    assert "2 files in 2 units: 2 differ from the plan" in plan.output
    assert "\nrefused: the tags of email are gone" in plan.output
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE twin (id INT) USING parquet LOCATION '{lake.path('a').as_uri()}'")
    chosen = ["--table", lake.name("a"), "--policy", policy, "--json"]
    shared = run_command(lake, "plan", *chosen)
    assert (shared.exit_code, "share the folder" in json.loads(shared.stdout)["refused"]) == (74, True)
    assert run_command(lake, "plan", *chosen, "--accept-path-readers").exit_code == 2


def test_plan_keeps_no_units_footers(lake: Lake, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of a unit is forgotten once its drift is known, however many units there are."""
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO a SELECT id, '{SECRET}', CAST(id AS INT) p FROM range(2, 8)")
    alive: list[int] = []

    def watched(scanned: ScannedUnit, *arguments: Any, **named: Any) -> UnitSurvey:
        alive.append(sum(isinstance(thing, ScannedUnit) for thing in gc.get_objects()))
        return survey_unit(scanned, *arguments, **named)

    monkeypatch.setattr(run_survey, "survey_unit", watched)
    assert run_command(lake, "plan", "--table", lake.name("a"), "--policy", policy).exit_code == 2
    assert len(alive) == 8
    assert max(alive) <= 2


def test_bar_goes_with_a_pass_and_its_rollback(lake: Lake, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal each table's bar shows its own units and files, and the steps of a rollback are lines."""
    text = io.StringIO()
    for module in (backfill_command, past_runs):
        console = Console(file=text, force_terminal=True, width=160)
        monkeypatch.setattr(module, "progress_on_stderr", partial(BarProgress, console))
    done = run_command(lake, "backfill", "--database", lake.database, "--policy", policy, "--json")
    assert done.exit_code == 0, done.output
    shown = " ".join(Text.from_ansi(text.getvalue()).plain.split())
    assert "2/2 units 2/2 files" in shown and "3/2" not in shown and "4/2" not in shown
    run_id = json.loads(done.stdout)["tables"][0]["run_id"]
    text.seek(0)
    text.truncate()
    back = run_command(lake, "backfill", "rollback", run_id, "--table", lake.name("a"), "--policy", policy)
    assert back.exit_code == 0, back.output
    assert {"p=0: rolling back", "p=1: rolling back"} <= set(Text.from_ansi(text.getvalue()).plain.splitlines())


def test_quarantined_unit_ends_with_74(lake: Lake, policy: str, tmp_path: Path) -> None:
    """What could not be done is named on the terminal and in the report, and the exit code says so."""
    next((lake.path("a") / "p=0").glob("part-*")).write_bytes(b"PAR1 nothing PAR1")
    report = tmp_path / "report.json"
    done = run_command(lake, "backfill", "--table", lake.name("*"), "--policy", policy, "--report", str(report))
    assert done.exit_code == 74, done.output
    assert f"quarantined: {lake.name('a')}: p=0: VerificationError" in done.output
    document = json.loads(report.read_text())
    assert (document["outcome"], document["totals"]["quarantined"]) == ("incomplete", 1)
    assert document["totals"]["files_rewritten"] == 3


def test_budget_is_told_and_leaves_the_rest(lake: Lake, policy: str) -> None:
    """A pass that stops at its budget ends well, says what is left, and `status` says that it goes on."""
    command = ["backfill", "--table", lake.name("a"), "--policy", policy, "--max-bytes", "1B", "--parallelism", "1"]
    done = run_command(lake, *command)
    assert done.exit_code == 0, done.output
    assert "stopped at budget" in done.output and "left: 1 unit" in done.output
    status = run_command(lake, "backfill", "status", "--table", lake.name("a"), "--policy", policy)
    assert "paused" in status.output and "its budget was spent" in status.output
    assert run_command(lake, *command).exit_code == 0
    assert run_command(lake, "plan", "--table", lake.name("a"), "--policy", policy).exit_code == 0
    assert len(rows_of(lake.spark.table("a"))) == 2


def test_failed_pass_is_reported_in_both_forms(lake: Lake, policy: str, tmp_path: Path) -> None:
    """A pass that cannot begin leaves a report and a page that say why."""
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    done = run_command(
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
        (["--policy", "p", "--table", "t", "--path", "d"], "give --table or --database, or else --path"),
        (["--policy", "p", "--table", "t", "--max-bytes", "lots"], "'lots' is not a size"),
        (["--policy", "p", "--table", "t", "--max-bytes", "500"], "'500' has no unit; allowed: a number above 0 with"),
        (["--policy", "p", "--table", "t", "--max-duration", "0h"], "'0h' is not a duration"),
        (["--policy", "p", "--table", "t", "--max-duration", "4"], "one of s, m, h, d, such as 4h"),
        (["expire", "--policy", "p", "--table", "t", "--older-than", "7"], "'7' has no unit"),
        (["--policy", "p", "--table", "t", "--parallelism", "0"], "0 is not in the range"),
        (["--table", "t", "list", "--policy", "p"], "options go after list"),
    ],
)
def test_wrong_calls_are_usage_errors(arguments: list[str], said: str) -> None:
    """Each is told with what is allowed, before Spark is started."""
    done = CliRunner().invoke(cli, ["backfill", *arguments])
    assert done.exit_code == 64
    assert said in done.output
