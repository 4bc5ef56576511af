"""The report of a run, for machines and for people."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.ledger.unit import Unit
from sparkcrypt.plan import build_plan
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.runs.passes.result import RunResult
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.runs.table.unit_survey import Amount, UnitSurvey
from sparkcrypt.schema import schema_from_spark
from tests.unit.backfill.run_reports import report

POLICY = """
version: 1
key_service: {type: local, path: /keys}
footer: {key: footer}
untagged: plaintext
tags: {pii: {key: pii}}
"""
FIELDS = [
    "table", "run_id", "engine", "files_total", "files_rewritten", "files_skipped", "rows",
    "bytes_before", "bytes_after", "columns", "verified", "seconds", "old_location",
    "outcome", "swap", "units", "warnings", "audit",
    "files_left", "bytes_left", "units_left", "quarantined", "drift", "coverage", "planned",
    "estimated_seconds", "this_pass", "earlier", "problems", "awaiting_expiry", "key_calls", "index", "new_location",
    "untagged", "data_columns",
    "missing_keys",
]  # fmt: skip


def test_the_promised_fields_are_there_in_order() -> None:
    """Field names are what others parse."""
    assert [field.name for field in fields(Report)] == FIELDS
    assert list(report().to_dict()) == FIELDS


def test_a_report_is_json_as_it_stands() -> None:
    """It goes through JSON unchanged, and its parts are copies."""
    made = report()
    document = made.to_dict()
    assert json.loads(json.dumps(document)) == document
    document["columns"]["x"] = "y"
    document["units"][0]["rows"] = 0
    document["audit"]["number"] = 0
    assert made == report()


def test_a_report_cannot_be_changed() -> None:
    """Values are frozen."""
    with pytest.raises(FrozenInstanceError):
        report().rows = 1  # type: ignore[misc]


def test_people_read_a_table_that_lines_up() -> None:
    """Every fact is in the text, large numbers with separators, no line ends in a space."""
    text = report().to_text()
    for part in (
        "table      sales.customers",
        "outcome    done",
        "files      1,200: 1,000 rewritten, 200 matched already",
        "bytes      5,000,000 became 5,100,000",
        "verified   yes",
        "old files  /warehouse/customers",
        "new files  /.sparkcrypt/customers/run",
        "column               key id",
        "phones.list.element  contact-2026-01",
        "unit  files  rows",
        "p=1   1000   336776",
        "warning: readers in flight fail",
        "audit      head 7:ab12",
    ):
        assert part in text.splitlines()
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_run_that_did_nothing_says_so_in_few_lines() -> None:
    """Empty parts leave no empty tables."""
    text = report(outcome="nothing to do", columns={}, units=(), warnings=(), old_location=None, swap=None).to_text()
    assert "old files  none" in text and "swap       none" in text
    assert "" not in text.splitlines()


def test_what_was_not_verified_stands_out() -> None:
    """A reader does not overlook it."""
    assert "verified   NO" in report(verified=False, outcome="failed").to_text().splitlines()


def test_an_untagged_table_is_never_said_to_be_verified_or_to_match() -> None:
    """Nothing of it is encrypted, and the text says so with the next step."""
    made = report(
        outcome="untagged", untagged=True, data_columns=3, verified=False, columns={}, units=(), files_rewritten=0
    )
    text = made.to_text()
    assert "outcome    untagged" in text and "none of its 3 columns has a tag that encrypts" in text
    assert "`sparkcrypt tags set`" in text
    assert "yes" not in text and "matched" not in text
    assert (made.to_dict()["outcome"], made.to_dict()["verified"]) == ("untagged", False)


def test_what_is_still_encrypted_is_not_called_untagged() -> None:
    """After tags were taken off, files that nobody has decrypted yet differ from the plan."""
    schema = schema_from_spark({"type": "struct", "fields": [{"name": "email", "type": "string", "nullable": True}]})
    target: Any = SimpleNamespace(
        name="db.t", plan=build_plan(schema, (), policy_from_text(POLICY, where="", base="/"))
    )
    unit = Unit("db.t", "/t", None, "", {})
    kept = UnitSurvey(unit, Amount(1, 9), (Drift("extra", "/t/f", "email", "encrypted with 'pii'"),))
    clear = UnitSurvey(unit, Amount(1, 9), ())
    for survey, outcome, untagged in ((kept, "incomplete", False), (clear, "nothing to do", True)):
        made = RunResult("run", outcome, [survey]).report(target, "native", 1.0)  # type: ignore[arg-type]
        assert (made.untagged, made.outcome) == (untagged, "untagged" if untagged else outcome)
        assert made.data_columns == 1
