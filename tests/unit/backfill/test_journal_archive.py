"""Journals: forms of their entries, what is archived, which runs are settled, and the folders that they name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.files.listing import Beside
from sparkcrypt.ledger.audit.audit import AuditWriter, journalled_head, verify_audit
from sparkcrypt.ledger.journal.entries import (
    AuditHead,
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
from sparkcrypt.ledger.journal.journal import KINDS, Journal, archive_records, clear_archived
from sparkcrypt.ledger.journal.unit_status import has_ended, has_expired, status_of_units
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.unit import Folder, Unit, UnitOutcome
from sparkcrypt.runs.old_folders.old_folder import new_files
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tables.table import Partition
from tests.journals import find_unfinished
from tests.unit.backfill.audits import entry
from tests.unit.backfill.conftest import RUN, TABLE, run_record, swap_unit
from tests.unit.backfill.memory_store import MemoryStore

MAC = TableMac(b"k" * 32)
NAME = f"archive/{TABLE}/{RUN}.json"


class Killed(BaseException):
    """The end of the process."""


def expired_run(store: Any) -> Journal:
    """A run of one unit, audited, ended and expired."""
    journal = Journal.start(store, run_record(), MAC)
    head = AuditWriter(store, TABLE, MAC, 1).append(entry())
    listed = {"location": "/t/p=1", "partition": [["p", "1"]], "serde": "", "partition_path": "p=1"}
    files = [["", [["/f", 1, 2]]]]
    swap_unit(journal, "p=1", **listed, files=files, outcome={"unit": "p=1"}, audit=head.to_dict())
    journal.append("run_finished", outcome="done")
    journal.append("run_expired", folders=["/old"])
    return journal


def archived(store: Any) -> Journal:
    """Archive the run; return its journal as it was before."""
    journal = expired_run(store)
    archive_records(store, TABLE, RUN, journal.records, MAC)
    return journal


def test_one_record_is_left_and_says_what_the_journal_said() -> None:
    """The run, its units, its end and the audit's counts and heads are as before; the lists of files are gone."""
    store = MemoryStore({})
    before = archived(store)
    assert [name for name in store.records if not name.startswith("log/")] == [NAME]
    after = Journal.open(store, TABLE, RUN, MAC)
    assert after.archived and after.authenticated and has_ended(after) and has_expired(after)
    assert after.run == before.run and Journal.runs(store, TABLE) == (RUN,)
    assert [(record.kind, record.digest, record.time) for record in after.records] == [
        (record.kind, record.digest, record.time) for record in before.records
    ]
    assert "files" not in status_of_units(after.records)["p=1"].fields
    assert status_of_units(after.records)["p=1"].fields["outcome"] == {"unit": "p=1"}
    assert find_unfinished(store, TABLE, MAC) is None
    with pytest.raises(RunConflictError, match="have expired"):
        after.append("run_resumed")


def test_lists_that_are_gone_are_no_empty_lists() -> None:
    """A unit's place is known of an archived run; whoever asks for its files gets an error that names the unit."""
    store = MemoryStore({})
    before = status_of_units(archived(store).records)["p=1"]
    after = status_of_units(Journal.open(store, TABLE, RUN, MAC).records)["p=1"]
    assert (after.place, after.swapped) == (replace(before.unit, folders=()), True)
    for ask in (lambda: after.unit, lambda: after.evidence, lambda: list(new_files(after))):
        with pytest.raises(VerificationError, match="p=1: the old files of its run have expired"):
            ask()


@pytest.mark.parametrize("cut", [False, True])
def test_an_audit_is_held_against_the_archive(cut: bool) -> None:
    """The number of swapped units and the newest head that the archive tells of find an audit that was cut."""
    store = MemoryStore({})
    archived(store)
    head = journalled_head(store, TABLE)
    assert head is not None and head.number == 1
    if not cut:
        assert verify_audit(store, TABLE, MAC, expected=[head]) == head
        return
    for name in [name for name in store.records if name.startswith("log/")]:
        store.delete(name)
    with pytest.raises(VerificationError, match="its end was cut off"):
        verify_audit(store, TABLE, MAC)


@pytest.mark.parametrize("deleted", range(9))
def test_a_process_that_ends_in_between_leaves_both(deleted: int) -> None:
    """However many records of the journal are gone already: the run is there, has ended, and the rest is cleared."""

    class Ending(MemoryStore):
        left = deleted

        def delete(self, name: str) -> None:
            if self.left == 0:
                raise Killed
            self.left -= 1
            super().delete(name)

    store = Ending({})
    try:
        archived(store)
    except Killed:
        assert deleted < 8
    assert Journal.open(store, TABLE, RUN, MAC).archived
    assert find_unfinished(store, TABLE, MAC) is None
    store.left = 100
    clear_archived(store, TABLE, RUN, MAC.check)
    assert not store.list("runs/") and store.read(NAME)


@pytest.mark.parametrize("change", [b'"version":1', b'"run_id"', b'"run_finished"'])
def test_an_edited_archive_is_refused(change: bytes) -> None:
    """What someone changed does not authenticate, and is named."""
    store = MemoryStore({})
    archived(store)
    store.records[NAME] = store.records[NAME].replace(change, change.upper().replace(b"1", b"2"))
    with pytest.raises(VerificationError, match=NAME):
        Journal.open(store, TABLE, RUN, MAC)


def test_a_planted_archive_neither_ends_a_run_nor_deletes_its_journal() -> None:
    """An archive without the MAC, or of another run, beside a journal: the journal counts, and stays."""
    store = MemoryStore({})
    journal = Journal.start(store, run_record(), MAC)
    swap_unit(journal, "p=1")
    other = MemoryStore({})
    archive_records(other, TABLE, RUN, expired_run(other).records, TableMac(b"o" * 32))
    store.records[NAME] = other.records[NAME]
    count = len(store.records)
    clear_archived(store, TABLE, RUN, MAC.check)
    assert len(store.records) == count
    opened = Journal.open(store, TABLE, RUN, MAC)
    assert not opened.archived and len(opened.records) == 6
    assert find_unfinished(store, TABLE, MAC) == RUN
    with pytest.raises(VerificationError, match="does not authenticate"):
        store.records = {NAME: other.records[NAME]}
        Journal.open(store, TABLE, RUN, MAC)


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
HEAD, AUDIT = AuditHead(9, "ab"), {"number": 9, "digest": "ab"}
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
    (UnitSwapped(OUTCOME, HEAD), {"unit": "p=1", "outcome": OUTCOME.to_dict(), "audit": AUDIT}),
    (UnitMoved(OUTCOME), {"unit": "p=1", "outcome": OUTCOME.to_dict()}),
    (
        UnitRelocated(UNIT, "file:/t", OUTCOME, HEAD),
        {"unit": "p=1", "base": "file:/t", "outcome": OUTCOME.to_dict(), "audit": AUDIT, **DESCRIBED},
    ),
    (UnitFailed("p=1", "PlanError: no"), {"unit": "p=1", "error": "PlanError: no"}),
    (
        CARRYING,
        {
            "unit": "p=1", "from": "/old", "to": "/new", "files": FILES, "staged": "/s", "made": FILES,
            "evidence": EVIDENCE, "rows": 5, "engine": "native",
        },
    ),
    (UnitCarried("p=1", "/old", FOLDERS, HEAD), {"unit": "p=1", "from": "/old", "files": FILES, "audit": AUDIT}),
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
    (UnitRolledBack("p=1", HEAD), {"unit": "p=1", "audit": AUDIT}),
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
