"""`sparkcrypt status` from its arguments to its files and exit codes; no session starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparkcrypt
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.runs.passes.last_pass import PassRecord
from sparkcrypt.runs.passes.lost_tags import record_lost_tags
from tests.unit.backfill.pass_reports import coverage
from tests.unit.backfill.run_reports import report

from .conftest import run

WAITING = {
    "files": 2, "bytes": 300, "plaintext_files": 2, "plaintext_bytes": 300, "since": "2026-01-01T00:00:00+00:00",
    "beyond_grace": False, "plaintext_since": "2026-01-01T00:00:00+00:00", "as_of": 0,
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """The policy's state directory, in which passes recorded two tables."""
    store = LocalStateStore(tmp_path / "state")
    half = {"pii": coverage(before=0, after=0.5)}
    left = {"units_left": 2, "bytes_left": 500, "coverage": half, "awaiting_expiry": WAITING}
    PassRecord(store, "one").keep(report(table="sales.customers", **left), page="/reports/night.html")
    PassRecord(store, "two").keep(report(table="web.clicks", outcome="untagged", untagged=True))
    return store


def test_text_has_sums_tags_and_tables(policy: Path, store: LocalStateStore) -> None:
    """A line for each, with ages; what is beyond its grace is named with the command that ends it."""
    done = run("status", "--policy", policy)
    lines = done.output.splitlines()
    assert lines[0] == "2 tables: 0 as planned, 1 with drift, 1 untagged, 0 not surveyed"
    assert lines[1] == "plaintext awaiting expiry: 2 files, 300 B"
    assert "pii  50.0 %                2.0 GB of 4.0 GB  20 of 40" in lines
    row = next(line for line in lines if line.startswith("sales.customers"))
    assert "done" in row and "2 units, 500 B" in row and "300 B for " in row
    assert "untagged" in next(line for line in lines if line.startswith("web.clicks"))
    assert any("`sparkcrypt backfill expire --table sales.customers`" in line for line in lines)
    assert done.code == 0


def test_it_can_be_of_one_database(policy: Path, store: LocalStateStore) -> None:
    """Its tables alone are counted and shown; without any, the next step is named."""
    found = run("status", "--policy", policy, "--database", "web", "--json").document
    assert [table["table"] for table in found["tables"]] == ["web.clicks"] and found["totals"]["untagged"] == 1
    assert "`sparkcrypt backfill`" in run("status", "--policy", policy, "--database", "none").output


def test_lost_tags_end_with_74(policy: Path, store: LocalStateStore) -> None:
    """As they end `backfill status`; drift alone does not."""
    record_lost_tags(store, "sales.customers", "tags lost: email")
    done = run("status", "--policy", policy)
    assert done.code == 74 and "tags lost: sales.customers: tags lost: email" in done.output


def test_page_and_metrics_are_written_whole(policy: Path, store: LocalStateStore, tmp_path: Path) -> None:
    """For a browser and for node exporter, which may read them, and in the place of older ones."""
    page, metrics = tmp_path / "status.html", tmp_path / "sparkcrypt.prom"
    for _ in range(2):
        assert run("status", "--policy", policy, "--html", page, "--metrics", metrics).code == 0
    assert metrics.read_text().count('sparkcrypt_table_units_left{table="sales.customers"} 2\n') == 1
    assert "<h1>Some work is left</h1>" in page.read_text() and 'night.html">' in page.read_text()
    assert metrics.stat().st_mode & 0o777 == 0o644
    assert not [left for left in tmp_path.iterdir() if left.name.endswith(".tmp")]


@pytest.mark.parametrize("option", ["--html", "--metrics"])
def test_a_place_that_is_not_there_is_refused_first(policy: Path, tmp_path: Path, option: str) -> None:
    """Before anything is read, with the option's name."""
    done = run("status", "--policy", policy, option, tmp_path / "none" / "file")
    assert done.code == 78 and option in done.errors


def test_python_has_the_same(policy: Path, store: LocalStateStore) -> None:
    """`sparkcrypt.status` returns what the command prints as JSON."""
    found = sparkcrypt.status(sparkcrypt.load_policy(policy), databases=["sales"]).to_dict()
    printed = run("status", "--policy", policy, "--database", "sales", "--json").document
    assert {**found, "at": ""} == {**printed, "at": ""}
