"""What tests ask of a table's journals."""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import StateStore


def find_unfinished(store: StateStore, table_id: str, mac: TableMac | None = None) -> str | None:
    """Return the id of the latest run that has not ended, except damaged ones; None if all have."""
    for run_id in reversed(Journal.runs(store, table_id, archived=False)):
        try:
            if not Journal.has_ended(store, table_id, run_id, mac):
                return run_id
        except VerificationError:
            continue
    return None
