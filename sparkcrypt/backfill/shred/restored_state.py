"""Detection of a state directory that is an earlier copy: it lacks runs to whose folders the metastore points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.shred.scan_tables import TableScan
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.unit import run_of_folder


def find_newer_runs(store: StateStore, scans: Iterable[TableScan]) -> Iterator[str]:
    """Yield a message for each run that made a folder in use, and of which the state directory has no journal.

    A state directory that lacks a run may lack a hold as well.

    Args:
        store: the state directory.
        scans: the tables to check.
    """
    for scan in scans:
        known = set(Journal.runs(store, scan.target.table_id))
        for run_id in sorted({run for place in scan.target.locations() if (run := run_of_folder(place))} - known):
            yield (
                f"{scan.name}: run {run_id} made a folder that is in use, and the state directory has no record of it: "
                "it is an earlier copy of itself, or another one, and may lack holds; restore the newest copy, or give "
                "a head of the audit of keys that was kept elsewhere as --head"
            )
