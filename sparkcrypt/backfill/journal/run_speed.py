"""The speed of a table's earlier runs, used to estimate how long the rest of the table takes."""

from __future__ import annotations

from collections.abc import Iterable

from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.unit_steps import UnitState, state_of_units
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import VerificationError

_RUNS = 3
"""The number of newest runs that count, since machines, engines and files change."""


def bytes_a_second(store: StateStore, table_id: str) -> float | None:
    """Return the speed of a table's newest runs, in bytes of old files per second from a unit's listing to its swap.

    The seconds of units that were rewritten concurrently are added up, so a run with a parallelism of two is twice as
    fast.

    Returns:
        None if no run has swapped a unit, or no outcome has its seconds.
    """
    runs = list(Journal.runs(store, table_id))[-_RUNS:]
    return rate(state for run_id in runs for state in _states(store, table_id, run_id))


def rate(states: Iterable[UnitState]) -> float | None:
    """Return the bytes per second of units that were swapped; None if no outcome has its seconds."""
    outcomes = [state.fields["outcome"] for state in states if "outcome" in state.fields]
    timed = [outcome for outcome in outcomes if float(outcome.get("seconds") or 0) > 0]
    seconds = sum(float(outcome["seconds"]) for outcome in timed)
    return sum(int(outcome["bytes_before"]) for outcome in timed) / seconds if seconds else None


def _states(store: StateStore, table_id: str, run_id: str) -> tuple[UnitState, ...]:
    """Return the states of a run's units; empty if its journal cannot be read, since this is only an estimate."""
    try:
        return tuple(state_of_units(Journal.open(store, table_id, run_id).records).values())
    except VerificationError:
        return ()
