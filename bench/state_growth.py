"""The size of the state directory after a year of nightly runs, and the cost of a pass that finds nothing to do.

The classes of runs write journals, audit entries, archives and packs, each night for one unit of four files, without
Spark and without the data.  Tables share nothing in a state directory, so the figures are those of one table.
Seconds are CPU seconds of one process, with the state in memory.

What one night adds is what whole runs leave, over a synthesised table: all files of the state directory count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness import Report, in_memory
from bench.synthesised import Store, policy_in, run_over, take_their_place
from sparkcrypt.ledger.audit.audit import verify_audit
from sparkcrypt.ledger.audit.trust import AuditIndex, is_settled, settle
from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore
from tests.journals import find_unfinished

TABLES, NIGHTS, FILES, UNITS = 5, 365, 4, 20
_MAC = TableMac(b"k" * 32)
_DIGEST = "d" * 64


def run() -> Report:
    """Write a year of nightly runs of some tables, compact it as ``expire`` does, and measure before and after."""
    report = Report("state_growth", f"state of one table after {NIGHTS} nights of one unit, {FILES} files each")
    found: dict[str, list[float]] = {}
    with in_memory() as folder:
        store = LocalStateStore(folder / "state")
        for number in range(TABLES):
            for what, value in _of_table(store, folder / "state", f"table-{number}").items():
                found.setdefault(what, []).append(value)
        nights = [_measure_nights(folder / f"nights-{number}") for number in range(TABLES)]
    for what, most in (("nothing to do", 1), (f"{UNITS} new units in a batch", 8)):
        report.at_most(f"a night, {what}: files", "files", [night[what][0] for night in nights], most)
        report.add(f"a night, {what}: bytes", "KB", [night[what][1] / 1e3 for night in nights])
    for what, values in found.items():
        report.add(what.partition("|")[0], what.partition("|")[2], values)
    return report


def _of_table(store: LocalStateStore, root: Path, table: str) -> dict[str, float]:
    found = {"written|s": _seconds(lambda: _year(store, table))}
    found |= _measured(store, root, table, "not compacted")
    found["compacted|s"] = _seconds(lambda: _compact(store, table))
    return found | _measured(store, root, table, "compacted")


def _measure_nights(folder: Path) -> dict[str, tuple[int, int]]:
    """Return night -> by how many files and bytes the state of a table grows, once a pass has seen the table."""
    folder.mkdir()
    table, policy = Store(5 * UNITS, FILES, file_bytes=1_000_000), policy_in(str(folder))
    take_their_place(table)
    for _ in range(3):
        run_over(table, policy)
    grown = {"nothing to do": _grow(folder / "state", lambda: run_over(table, policy))}
    table.partitions += UNITS
    grown[f"{UNITS} new units in a batch"] = _grow(folder / "state", lambda: run_over(table, policy))
    return grown


def _grow(root: Path, night: Callable[[], object]) -> tuple[int, int]:
    """Return by how many files and bytes a folder grows."""
    (files, size), _, (after, more) = _sum_up(root), night(), _sum_up(root)
    return after - files, more - size


def _sum_up(root: Path) -> tuple[int, int]:
    sizes = [file.stat().st_size for file in root.rglob("*") if file.is_file()]
    return len(sizes), sum(sizes)


def _measured(store: LocalStateStore, root: Path, table: str, state: str) -> dict[str, float]:
    sizes = [(root / name).stat().st_size for kind in ("log",) for name in _names(store, kind, table)]
    names = store.list(f"log/{table}/")
    found = {
        f"{state}: files|files": float(len(sizes)),
        f"{state}: bytes|MB": sum(sizes) / 1e6,
        f"{state}: unfinished runs, every journal asked|s": _seconds(lambda: find_unfinished(store, table, _MAC)),
    }
    settle(store, table, names, _MAC)
    found[f"{state}: unfinished runs, by the pointer|s"] = _seconds(
        lambda: is_settled(store, table, store.list(f"log/{table}/"), _MAC.check)
    )
    found[f"{state}: audit read by a pass|s"] = _seconds(lambda: AuditIndex.of(TableLog.open(store, table, _MAC)))
    found[f"{state}: audit verify|s"] = _seconds(lambda: verify_audit(store, table, _MAC))
    return found


def _names(store: LocalStateStore, kind: str, table: str) -> tuple[str, ...]:
    return store.list(f"{kind}/{table}/")


def _year(store: LocalStateStore, table: str) -> None:
    log = TableLog.open(store, table, _MAC)
    for night in range(NIGHTS):
        _night(log, table, night)


def _night(log: TableLog, table: str, night: int) -> None:
    """Write the state that a run over one unit, and its expiry, leave."""
    run_id = f"2026{night // 31 + 1:02d}{night % 31 + 1:02d}T010000Z-{night:06x}"
    plan, options = {"columns": {"email": "pii"}}, {"engine": "native"}
    journal = Journal.start(log, RunRecord(table, "sales.t", run_id, _DIGEST, plan, options, night + 1))
    unit, old = f"p={night}", f"file:/warehouse/sales.db/t/p={night}"
    new = f"file:/warehouse/sales.db/.sparkcrypt/t/{run_id}-{night + 1}-1-0123abcd/{unit}"
    paths = [
        f"{old}/part-{number:05d}-1f7b8f0a-3f3c-4f0e-9b43-0f6a7f9a7a11.c000.snappy.parquet" for number in range(FILES)
    ]
    files = [["", [[path, 1_234_567, 1_763_780_000_000] for path in paths]]]
    listed = {"location": old, "partition": [["p", str(night)]], "serde": "", "partition_path": unit, "files": files}
    changes = [_change(path, new) for path in paths]
    digests = {"of": "length and footer", "by": "HMAC-SHA256", "secret": {"key_id": "audit", "wrapped": "x" * 80}}
    journal.append("unit_listed", unit=unit, staged=new, **listed)
    journal.append("unit_staged", unit=unit, staged=new, made=files)
    journal.append("unit_verified", unit=unit, staged=new, rows=20, evidence={"digests": digests, "changes": changes})
    journal.append("unit_swapping", unit=unit, staged=new)
    outcome = {"unit": unit, "files": FILES, "rows": 20, "old_location": old, "new_location": new, "verified": True}
    journal.append("unit_swapped", unit=unit, outcome=outcome, table="sales.t", policy_digest=_DIGEST)
    journal.append("run_finished", outcome="done")
    journal.append("run_expired", folders=[old])


def _change(path: str, new: str) -> dict[str, Any]:
    file = {"path": path, "bytes": 1_234_567, "modified_ms": 1_763_780_000_000, "rows": 5, "digest": _DIGEST}
    return {
        "folder": "",
        "sources": [{**file, "key_ids": [], "kept": path}],
        "targets": [{**file, "key_ids": ["footer", "pii"], "staged": f"{new}/{path.rpartition('/')[2]}"}],
        "pages": {"equal": True},
        "rows": {"count": 5, "equal": True},
    }


def _compact(store: LocalStateStore, table: str) -> None:
    """Compact the state as ``expire`` does at its end."""
    TableLog.open(store, table, _MAC).pack()


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
