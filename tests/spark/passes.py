"""Passes over one or several tables, those tables, and the problems that passes leave open."""

from __future__ import annotations

import time
from typing import Any

from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.rewrite.options import RunOptions
from tests.spark.support import Lake


def the_pass(lake: Lake, policy: Policy, **options: Any) -> PassReport:
    """Run a pass over the table."""
    return backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True), **options))


def the_problem(report: PassReport) -> dict[str, Any]:
    """Return the one open problem that makes a pass incomplete."""
    assert (report.outcome, report.exit_code) == ("incomplete", 74)
    (problem,) = report.tables[0].problems
    assert any(problem["problem"] in unit["message"] for unit in report.tables[0].quarantined)
    return dict(problem)


def with_grace(lake: Lake, policy: Policy, grace: str) -> Policy:
    """Set the policy's grace for old files, after waiting that long if it is in seconds."""
    if grace.endswith("s"):
        time.sleep(int(grace[:-1]))
    return lake.changed("untagged:", f"old_files: {{grace: {grace}}}\nuntagged:")
