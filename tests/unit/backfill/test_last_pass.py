from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkcrypt.runs.old_folders.old_folder import Awaiting
from sparkcrypt.runs.passes.last_pass import PassRecord, TagCoverage, covers_table
from sparkcrypt.runs.rewrite.options import RunOptions
from tests.unit.backfill.memory_store import MemoryStore
from tests.unit.backfill.pass_reports import coverage
from tests.unit.backfill.run_reports import report

WAITING = Awaiting(3, 30, 2, 20, "2026-11-21T10:00:00+00:00", beyond_grace=False, as_of=7)
DONE = report(
    coverage={"pii": coverage(before=0.25, after=0.5)},
    drift={"before": {"plaintext": 9}, "after": {"plaintext": 4, "missing": 1}},
    units_left=2,
    awaiting_expiry=WAITING.to_dict(),
    key_ids=("footer", "pii"),
    this_pass={"files_rewritten": 5, "bytes_before": 600},
    key_calls={"before": 3},
)


def test_a_report_is_kept_as_figures_and_as_what_was_done() -> None:
    """One small record has both, and is read again as it was written; the page is where it was to be."""
    store = MemoryStore({})
    PassRecord(store, "t").keep(DONE, fingerprint="f", page="/reports/night.html")
    record = PassRecord(store, "t")
    last = record.last
    assert record.fingerprint == "f" and last is not None and last.figures is not None
    assert (last.table, last.outcome, last.page) == ("sales.customers", "done", "/reports/night.html")
    assert (last.files_rewritten, last.bytes_rewritten, round(last.bytes_a_second, 2)) == (5, 600, 9.79)
    figures = last.figures
    assert figures.drift == {"missing": 1, "plaintext": 4} and figures.units_left == 2
    assert figures.coverage == {"pii": TagCoverage(40, 4_000_000_000, 20, 2_000_000_000)}
    assert (figures.awaiting, figures.key_ids, figures.key_calls) == (WAITING, ("footer", "pii"), 3)
    assert len(store.records) == 1 and max(map(len, store.records.values())) < 2_000


def test_a_pass_without_a_report_leaves_the_figures() -> None:
    """A refused or failed table has those of its last survey, with their age; those of an unchanged one are of now."""
    store = MemoryStore({})
    PassRecord(store, "t").keep(DONE, fingerprint="f")
    kept = PassRecord(store, "t").last
    assert kept is not None and kept.figures is not None
    old = replace(kept, tried="2026-01-01T00:00:00Z", figures=replace(kept.figures, at="2026-01-01T00:00:00Z"))
    for outcome, reason, is_new in (("refused", "the tags are gone", False), ("unchanged", None, True)):
        content = {"version": 1, "fingerprint": "f", "last": old.to_dict()}
        there = MemoryStore({"cache/passes/t/00000001.json": json.dumps(content).encode()})
        PassRecord(there, "t").note("sales.clients", outcome, reason)
        assert list(there.records) == ["cache/passes/t/00000002.json"]
        now = PassRecord(there, "t")
        assert now.last is not None and now.last.figures is not None and now.fingerprint == "f"
        assert (now.last.table, now.last.outcome, now.last.reason) == ("sales.clients", outcome, reason)
        assert now.last.tried > old.tried and (now.last.figures.at > old.tried) is is_new
        assert replace(now.last.figures, at="") == replace(kept.figures, at="")


def test_a_fingerprint_stays_until_another_takes_its_place() -> None:
    """It is compared with the table as it is, so an old one cannot hide a change."""
    store = MemoryStore({})
    for fingerprint, expected in (("f", "f"), (None, "f"), ("g", "g")):
        PassRecord(store, "t").keep(DONE, fingerprint=fingerprint)
        assert PassRecord(store, "t").fingerprint == expected


def test_a_run_that_failed_keeps_what_it_did_and_no_figures() -> None:
    """It may have surveyed nothing: its units and drift would be said to be none."""
    store = MemoryStore({})
    PassRecord(store, "t").keep(DONE)
    record = PassRecord(store, "t")
    record.keep_failed("sales.customers", "StorageError", [report(outcome="failed", run_id="r2", drift={})])
    last = PassRecord(store, "t").last
    assert last is not None and last.figures is not None
    assert (last.outcome, last.reason, last.run_id) == ("failed", "StorageError", "r2")
    assert last.figures.drift == {"missing": 1, "plaintext": 4}


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"version": 2}', b'{"version": 1}', b'{"version": 1, "fingerprint": null, "last": {"table": "t"}}'],
)
def test_a_record_that_no_release_wrote_is_as_none(content: bytes) -> None:
    """It may be cut, or of a later release; the next pass writes another."""
    record = PassRecord(MemoryStore({"cache/passes/t/00000001.json": content}), "t")
    assert record.last is None and record.fingerprint is None


def test_a_record_of_an_earlier_release_has_the_fingerprint_alone() -> None:
    """A pass then skips the table as before, and knows no figures."""
    store = MemoryStore({"cache/passes/t/00000003.json": b'{"version": 1, "fingerprint": "f"}'})
    record = PassRecord(store, "t")
    assert record.fingerprint == "f" and record.last is None
    record.note("db.t", "unchanged")
    last = PassRecord(store, "t").last
    assert last is not None and last.figures is None


def test_a_table_that_gets_a_uuid_has_another_record() -> None:
    """Before its first run its id is made of its name."""
    record = PassRecord(MemoryStore({}), "of the name")
    assert record.of_table("of the name") is record and record.of_table("uuid") is not record


@pytest.mark.parametrize("part", [{"where": "day > 1"}, {"rotate_key": "pii"}, {"output": "/x"}, {"home": True}])
def test_runs_that_look_at_a_part_are_not_kept(part: dict[str, object]) -> None:
    """Their figures would pass for those of the whole table."""
    assert covers_table(RunOptions()) and not covers_table(RunOptions(**part))  # type: ignore[arg-type]
