"""What tests do with a table's journals."""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.journal import Journal, RunRecord, has_ended
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import StateStore


def start_run(store: StateStore, run: RunRecord, mac: TableMac | None = None) -> Journal:
    """Begin the journal of a run."""
    return Journal.start(TableLog.open(store, run.table_id, mac), run)


def find_unfinished(store: StateStore, table_id: str, mac: TableMac | None = None) -> str | None:
    """Return the id of the latest run that has not ended, except damaged ones; None if all have."""
    log = TableLog.open(store, table_id, mac)
    for run_id in reversed(Journal.runs(log, archived=False)):
        try:
            if not has_ended(Journal.open(log, run_id)):
                return run_id
        except VerificationError:
            continue
    return None
