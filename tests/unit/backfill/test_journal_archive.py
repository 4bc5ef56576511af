"""Journals: forms of their entries, what is archived, which runs are settled, and the folders that they name."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.files.listing import Beside
from sparkcrypt.ledger.audit.audit import AuditWriter
from sparkcrypt.ledger.journal.entries import (
    Entry,
    Proven,
    RunExpired,
    RunExpiring,
    RunFinished,
    RunPaused,
    RunRolledBack,
    UnitCarried,
    UnitCarrying,
    UnitFailed,
    UnitListed,
    UnitMoved,
    UnitRelocated,
    UnitResolved,
    UnitRolledBack,
    UnitRollingBack,
    UnitStaged,
    UnitSwapped,
    UnitSwapping,
    UnitVerified,
)
from sparkcrypt.ledger.journal.journal import KINDS, Journal, has_ended, has_expired
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.unit import Folder, Unit, UnitOutcome
from sparkcrypt.runs.old_folders.old_folder import new_files
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tables.table import Partition
from tests.journals import find_unfinished, start_run
from tests.unit.backfill.audits import entry
from tests.unit.backfill.conftest import RUN, TABLE, run_record, swap_unit
from tests.unit.backfill.memory_store import MemoryStore

MAC = TableMac(b"k" * 32)


def expired_run(store: Any) -> Journal:
    """A run of one unit, audited, ended and expired."""
    journal = start_run(store, run_record(), MAC)
    AuditWriter(journal.log, 1).append(entry())
    listed = {"location": "/t/p=1", "partition": [["p", "1"]], "serde": "", "partition_path": "p=1"}
    files = [["", [["/f", 1, 2]]]]
    swap_unit(journal, "p=1", **listed, files=files, outcome={"unit": "p=1"})
    journal.append("run_finished", outcome="done")
    journal.append("run_expired", folders=["/old"])
    return journal


@pytest.fixture
def archived(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryStore, Journal]:
    """A store in which the run is packed, and its journal as it was before."""
    monkeypatch.setattr(import_module(TableLog.__module__), "MOST_PACKED", 3)
    store = MemoryStore({})
    journal = expired_run(store)
    TableLog.open(store, TABLE, MAC).append("replaced", "replaced", 1, {})
    TableLog.open(store, TABLE, MAC).pack()
    return store, journal


def test_packed_journal_says_what_it_said(archived: tuple[MemoryStore, Journal]) -> None:
    """The run, its units, its end and digests are as before; the lists of files are gone, and nothing is appended."""
    store, before = archived
    assert len(store.records) == 4
    after = Journal.open(TableLog.open(store, TABLE, MAC), RUN)
    assert after.archived and after.authenticated and has_ended(after) and has_expired(after)
    assert after.run == before.run and Journal.runs(TableLog.open(store, TABLE, None)) == (RUN,)
    assert Journal.runs(TableLog.open(store, TABLE, None), archived=False) == ()
    assert [(record.kind, record.digest, record.time) for record in after.records] == [
        (record.kind, record.digest, record.time) for record in before.records
    ]
    assert "files" not in status_of_units(after.records)["p=1"].fields
    assert status_of_units(after.records)["p=1"].fields["outcome"] == {"unit": "p=1"}
    assert find_unfinished(store, TABLE, MAC) is None
    with pytest.raises(RunConflictError, match="have expired"):
        after.append("run_resumed")


def test_lists_that_are_gone_are_no_empty_lists(archived: tuple[MemoryStore, Journal]) -> None:
    """A unit's place is known of a packed run; whoever asks for its files gets an error that names the unit."""
    store, journal = archived
    before = status_of_units(journal.records)["p=1"]
    after = status_of_units(Journal.open(TableLog.open(store, TABLE, MAC), RUN).records)["p=1"]
    assert (after.place, after.swapped) == (replace(before.unit, folders=()), True)
    for ask in (lambda: after.unit, lambda: after.evidence, lambda: list(new_files(after))):
        with pytest.raises(VerificationError, match="p=1: the old files of its run have expired"):
            ask()


FOLDERS = (Folder("", (SourceFile("file:/t/p=1/a", 3, 7),)),)
FILES = [["", [["file:/t/p=1/a", 3, 7]]]]
BESIDE = (Beside("_metadata", "summary", 5),)
PARTITION = Partition((("p", "1"),), "file:/t/p=1", "parquet")
UNIT = Unit("p=1", "file:/t/p=1", PARTITION, "p=1", {"p": "1"}, FOLDERS, BESIDE)
DESCRIBED = {
    "location": "file:/t/p=1", "partition": [["p", "1"]], "serde": "parquet", "partition_path": "p=1", "files": FILES,
    "summaries": [["_metadata", 5]],
}  # fmt: skip
OUTCOME = UnitOutcome("p=1", 1, 2, 3, 4, "file:/old", "file:/new", verified=True)
EVIDENCE: dict[str, Any] = {"digests": {}, "changes": []}
ABOUT = {"engine": "native", "codec": None, "notes": ["slow"]}
CARRYING = UnitCarrying("p=1", "/old", "/new", FOLDERS, "/s", FOLDERS, EVIDENCE, 5, "native")

WRITTEN: list[tuple[Entry, dict[str, Any]]] = [
    (RunPaused(None), {"units_left": None}),
    (RunFinished("done"), {"outcome": "done"}),
    (RunRolledBack(("p=1",)), {"units": ["p=1"]}),
    (RunExpiring(("/old",)), {"folders": ["/old"]}),
    (RunExpired(("/old",)), {"folders": ["/old"]}),
    (RunExpired(("/old",), ("p=1",)), {"folders": ["/old"], "units_left": ["p=1"]}),
    (UnitListed(UNIT, "/s"), {"unit": "p=1", "staged": "/s", **DESCRIBED}),
    (UnitSwapping("p=1", "/s"), {"unit": "p=1", "staged": "/s"}),
    (UnitStaged("p=1", "/s", FOLDERS), {"unit": "p=1", "staged": "/s", "made": FILES}),
    (
        UnitVerified("p=1", "/s", Proven(5, EVIDENCE, ABOUT)),
        {"unit": "p=1", "staged": "/s", "rows": 5, "evidence": EVIDENCE, "about": ABOUT},
    ),
    (
        UnitSwapped(OUTCOME, "db.t", "d"),
        {"unit": "p=1", "outcome": OUTCOME.to_dict(), "table": "db.t", "policy_digest": "d", "predecessor": None},
    ),
    (UnitMoved(OUTCOME), {"unit": "p=1", "outcome": OUTCOME.to_dict()}),
    (
        UnitRelocated(UNIT, "file:/t", OUTCOME),
        {"unit": "p=1", "base": "file:/t", "outcome": OUTCOME.to_dict(), **DESCRIBED},
    ),
    (UnitFailed("p=1", "PlanError: no"), {"unit": "p=1", "error": "PlanError: no"}),
    (
        CARRYING,
        {
            "unit": "p=1", "from": "/old", "to": "/new", "files": FILES, "staged": "/s", "made": FILES,
            "evidence": EVIDENCE, "rows": 5, "engine": "native",
        },
    ),
    (UnitCarried("p=1", "/old", FOLDERS), {"unit": "p=1", "from": "/old", "files": FILES}),
    (
        UnitResolved("p=1", "x1", "new", {"old": [["a", 3]]}),
        {
            "unit": "p=1", "problem": "x1", "keep": "new", "listing": {"old": [["a", 3]]}, "given_up": "",
            "cut_off": False,
        },
    ),
    (
        UnitResolved("p=1", "x1", "new", {}, "/old", cut_off=True),
        {"unit": "p=1", "problem": "x1", "keep": "new", "listing": {}, "given_up": "/old", "cut_off": True},
    ),
    (UnitRollingBack("p=1"), {"unit": "p=1"}),
    (UnitRolledBack("p=1"), {"unit": "p=1"}),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "fields"), WRITTEN, ids=lambda value: getattr(value, "kind", ""))
def test_an_entry_is_written_with_the_keys_that_every_release_reads(entry: Entry, fields: dict[str, Any]) -> None:
    """The fields of a record are a format: they keep their names, whatever a class calls them."""
    assert entry.to_dict() == fields


@pytest.mark.parametrize(("entry", "fields"), WRITTEN, ids=lambda value: getattr(value, "kind", ""))
def test_an_entry_that_is_read_again_is_equal(entry: Any, fields: dict[str, Any]) -> None:
    """What comes back from a record's fields is what was written."""
    if not isinstance(entry, UnitRelocated):  # its fields are only merged into the unit's status
        assert type(entry).from_dict(fields) == entry


def test_every_kind_has_an_entry() -> None:
    """But the two that say nothing of their own: the first record is the run's, and a resumption has no fields."""
    assert {entry.kind for entry, _ in WRITTEN} == set(KINDS) - {"run_started", "run_resumed"}
