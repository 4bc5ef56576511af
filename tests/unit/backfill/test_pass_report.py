"""How a pass ends: its outcome, and the code that commands end with."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.cli.frame.pass_text import pass_text
from sparkcrypt.runs.passes.report import PassReport, TableError
from tests.unit.backfill.run_reports import report

FAILED = {"failed": [TableError("s.t", "PlanError", "no tag x")]}
REFUSED = {"refused": {"s.t": "the tags of ssn are gone"}}


def made(*, dry_run: bool = False, **fields: Any) -> PassReport:
    """Return the report of a pass."""
    return PassReport("p", "digest", "2026-11-21T10:00:00+00:00", 1.0, dry_run, **fields)


@pytest.mark.parametrize("fields", [FAILED, REFUSED, {**FAILED, "tables": [report(outcome="dry run", units_left=2)]}])
def test_dry_run_that_could_not_look_at_a_table_ends_with_74(fields: dict[str, Any]) -> None:
    """Silence about a table would be taken for a match, and 2 for all the drift that there is."""
    done = made(dry_run=True, **fields)
    assert (done.outcome, done.exit_code) == ("dry run", 74)


def test_dry_run_ends_with_2_on_drift_alone() -> None:
    """Drift is a plan's news; without it, and with tables that are of another kind or unchanged, all is well."""
    drifting = report(outcome="dry run", units_left=1)
    assert made(dry_run=True, tables=[report(outcome="dry run"), drifting]).exit_code == 2
    well = made(dry_run=True, tables=[report(outcome="dry run")], passed_over={"s.v": "a view"}, unchanged=["s.u"])
    assert well.exit_code == 0


@pytest.mark.parametrize("fields", [FAILED, REFUSED, {"tables": [report(), report(outcome="incomplete")]}])
def test_pass_that_left_something_out_ends_with_74(fields: dict[str, Any]) -> None:
    """Tables that failed or were refused, and units that were quarantined."""
    done = made(**fields)
    assert (done.outcome, done.exit_code) == ("incomplete", 74)


@pytest.mark.parametrize("outcome", ["done", "nothing to do", "stopped at budget"])
def test_pass_that_did_what_it_could_ends_well(outcome: Any) -> None:
    """What a budget left is the next pass's; only a dry run ends with 2 on drift."""
    done = made(tables=[report(outcome=outcome, units_left=3)])
    assert (done.outcome, done.exit_code) == (outcome, 0)


CONFLICT = {"failed": [TableError("s.t", "RunConflictError", "another run holds it")]}
PROBLEM = {"problems": ({"problem": "0f"},)}


@pytest.mark.parametrize("dry_run", [False, True])
def test_pass_that_waits_for_other_runs_alone_ends_with_75(dry_run: bool) -> None:
    """A scheduler may try again by itself, unless something is left that does not end by itself: an open problem."""
    outcome: Any = "dry run" if dry_run else "done"
    assert made(dry_run=dry_run, **CONFLICT, tables=[report(outcome=outcome)]).exit_code == 75
    troubled = report(outcome=outcome if dry_run else "incomplete", **PROBLEM)
    assert made(dry_run=dry_run, **CONFLICT, tables=[troubled]).exit_code == 74


CONFIG: dict[str, Any] = {"failed": [TableError("s.t", "ConfigError", "no state")]}


def test_pass_in_which_every_table_met_an_error_of_the_set_up_ends_with_78() -> None:
    """If any table could be worked on, it is the fault of the one that could not."""
    assert made(**CONFIG).exit_code == 78
    assert made(**CONFIG, tables=[report()]).exit_code == 74
    assert made(failed=[*CONFIG["failed"], TableError("s.u", "PlanError", "no tag x")]).exit_code == 74


def test_dry_run_that_misses_a_folder_ends_with_74() -> None:
    """The pass would quarantine that unit, so its plan is no mere drift."""
    lost = report(outcome="dry run", quarantined=({"unit": "p=1", "error": "StorageError", "message": "no"},))
    assert made(dry_run=True, tables=[lost]).exit_code == 74


UNTAGGED: Any = {"outcome": "untagged", "untagged": True}


def test_untagged_tables_are_counted_and_end_no_pass_badly() -> None:
    """They are an outcome of their own, and no success: what is encrypted elsewhere is not theirs."""
    alone = made(tables=[report(**UNTAGGED)])
    assert (alone.outcome, alone.exit_code, alone.totals()["untagged"]) == ("untagged", 0, 1)
    assert made(tables=[report(**UNTAGGED), report(outcome="nothing to do")]).outcome == "nothing to do"
    assert made(tables=[report(**UNTAGGED), report()]).outcome == "done"


def test_text_of_a_pass_counts_and_names_untagged_tables() -> None:
    """Their rows do not say that they match, in a plan and in a pass."""
    dry = report(outcome="dry run", untagged=True, data_columns=3, table="s.plain")
    text = pass_text(made(dry_run=True, tables=[dry, report(outcome="dry run")]))
    assert "2 tables (1 untagged)" in text and "s.plain" in text and "no tag on 3 columns" in text
    assert "untagged, so nothing in them is encrypted: s.plain" in text
    assert text.count("matches") == 1
    assert pass_text(made(tables=[report(**UNTAGGED)])).startswith("untagged: 1 table (1 untagged)")
