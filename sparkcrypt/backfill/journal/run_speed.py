"""How long the rest of a table would take, by how long its earlier runs took."""

from __future__ import annotations

from collections.abc import Iterable

from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.unit_steps import UnitState, state_of_units
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import VerificationError

_RUNS = 3
"""How many of the newest runs count: machines, engines and files change."""


def bytes_a_second(store: StateStore, table_id: str) -> float | None:
    """Return how fast the newest runs of a table took units from listed to swapped, in bytes of old files a second.

    Units that are worked on at the same time count one by one, so a run with a parallelism of two is twice as fast.

    Returns:
        None when no run has swapped a unit, or none says how long it took.
    """
    runs = list(Journal.runs(store, table_id))[-_RUNS:]
    return rate(state for run_id in runs for state in _states(store, table_id, run_id))


def rate(states: Iterable[UnitState]) -> float | None:
    """Return the bytes a second of units that were swapped; None when none tells its seconds."""
    outcomes = [state.fields["outcome"] for state in states if "outcome" in state.fields]
    timed = [outcome for outcome in outcomes if float(outcome.get("seconds") or 0) > 0]
    seconds = sum(float(outcome["seconds"]) for outcome in timed)
    return sum(int(outcome["bytes_before"]) for outcome in timed) / seconds if seconds else None


def _states(store: StateStore, table_id: str, run_id: str) -> tuple[UnitState, ...]:
    """Return the units of a run; none of a run that cannot be read, since an estimate is no reason to stop."""
    try:
        return tuple(state_of_units(Journal.open(store, table_id, run_id).records).values())
    except VerificationError:
        return ()
