"""Records in memory and in the journal: what is written has the keys that every release reads, and comes back equal."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.files.listing import Beside
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
from sparkcrypt.ledger.journal.journal import KINDS
from sparkcrypt.ledger.journal.later_entries import (
    RunExpired,
    RunExpiring,
    RunRolledBack,
    UnitCarried,
    UnitCarrying,
    UnitMoved,
    UnitRelocated,
    UnitResolved,
    UnitRolledBack,
    UnitRollingBack,
)
from sparkcrypt.ledger.outcome import UnitOutcome
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.spark.files.hadoop import SourceFile
from sparkcrypt.spark.tables.catalog import Partition

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
    (UnitSwapping(UNIT, "/s"), {"unit": "p=1", "staged": "/s", **DESCRIBED}),
    (UnitStaged("p=1", "/s", FOLDERS), {"unit": "p=1", "staged": "/s", "files": FILES}),
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
    """Of those classes that are read: what comes back from a record's fields is what was written."""
    if hasattr(entry, "from_dict"):
        assert type(entry).from_dict(fields) == entry


def test_every_kind_has_an_entry() -> None:
    """But the two that say nothing of their own: the first record is the run's, and a resumption has no fields."""
    assert {entry.kind for entry, _ in WRITTEN} == set(KINDS) - {"run_started", "run_resumed"}
