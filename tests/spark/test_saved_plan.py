"""Plans that are saved are applied as they are, or not at all, on a real table."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sparkcrypt
from sparkcrypt.errors import RunConflictError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite import schedule, unit_rewriter
from sparkcrypt.runs.rewrite.saved_plan import SavedPlan
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.sessions import run_command
from tests.spark.support import SECRET, Lake, data_files, make_policy
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A policy with its keys, and a table of two partitions with a tagged column."""
    made = make_policy(lake.root / "p")
    make_table(lake, "t", partitions=2)
    return made


def test_a_saved_plan_is_applied_or_refused(lake: Lake, policy: Policy) -> None:
    """It is one file without values; new files make it stale, and so do other tags; nothing is changed then."""
    file, table, plan = str(lake.root / "p" / "policy.yaml"), lake.name("t"), str(lake.root / "plan.json")
    common = ["--policy", file]
    made = run_command(lake, "plan", "--table", table, *common, "--out", plan)
    assert made.exit_code == 2, made.output
    assert "  p=0: 1 file, " in made.output and "\nkey service: about " in made.output, made.output
    assert "\nfree space: " in made.output and "part-" not in made.output
    assert "part-" in run_command(lake, "plan", "--table", table, *common, "--files").output
    text = (lake.root / "plan.json").read_text()
    assert SECRET not in text and "p=0" not in text and "part-" not in text
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 9.5, 1)")
    before = data_files(lake.path("t"))
    stale = run_command(lake, "encrypt", "--plan", plan, *common)
    assert stale.exit_code == 75 and "new or differ: p=1;" in stale.output, stale.output
    assert run_command(lake, "encrypt", "--plan", plan, *common, "--dry-run").exit_code == 75
    assert data_files(lake.path("t")) == before
    assert run_command(lake, "plan", "--table", table, *common, "--out", plan).exit_code == 2
    set_tags(lake.spark, "t", {"pay": ["pii"]}, policy)
    stale = run_command(lake, "encrypt", "--plan", plan, *common)
    assert stale.exit_code == 75 and "the tags or keys of pay differ" in stale.output, stale.output
    assert run_command(lake, "plan", "--table", table, *common, "--out", plan).exit_code == 2
    done = run_command(lake, "encrypt", "--plan", plan, *common, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["outcome"] == "done"
    assert run_command(lake, "plan", "--table", table, *common).exit_code == 0
    again = run_command(lake, "encrypt", "--plan", plan, *common)
    assert again.exit_code == 75, again.output


def test_a_run_of_a_saved_plan_that_was_cut_off_goes_on(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same plan, and by no other; the units that it has swapped are no change."""
    saved = sparkcrypt.plan_files(lake.spark, lake.name("t"), policy, where="p >= 0").saved
    saved = SavedPlan.parse(saved.to_text(), "plan.json")
    seen: list[Any] = []
    process = unit_rewriter.UnitRewriter.process_all

    def fail_second(self: Any, todo: Any) -> Any:
        seen.append(todo)
        if len(seen) > 1:
            raise KeyboardInterrupt
        return process(self, todo)

    with monkeypatch.context() as patched:
        patched.setattr(schedule, "MOST_UNITS", 1)
        patched.setattr(unit_rewriter.UnitRewriter, "process_all", fail_second)
        with pytest.raises(KeyboardInterrupt):
            sparkcrypt.encrypt_table(lake.spark, None, policy, plan=saved, parallelism=1)
    other = sparkcrypt.plan_files(lake.spark, lake.name("t"), policy).saved
    with pytest.raises(RunConflictError, match="is unfinished, and does not apply this plan"):
        sparkcrypt.encrypt_table(lake.spark, None, policy, plan=other)
    assert sparkcrypt.encrypt_table(lake.spark, None, policy, plan=saved).outcome == "done"
