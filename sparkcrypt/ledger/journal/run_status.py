"""The status of a whole run, derived from its journal: ended, paused or expired."""

from __future__ import annotations

from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.later_entries import RunExpired

_CHANGE_NO_UNIT = (
    *("run_resumed", "run_expiring", "run_expired"),
    *("unit_carrying", "unit_carried", "unit_resolved", "unit_moved", "unit_relocated"),
)
"""The kinds of records that `expire` writes; a driver that continues the run writes other kinds too."""
_NEW_FILES = ("unit_swapped", "unit_moved", "unit_rolled_back")


def has_ended(journal: Journal) -> bool:
    """Return whether a run has ended."""
    return any(record.kind == "run_finished" for record in journal.records)


def is_paused(journal: Journal) -> bool:
    """Return whether a run stopped at its budget, every unit done or unchanged, and was not continued since."""
    kinds = [record.kind for record in journal.records if record.kind not in _CHANGE_NO_UNIT]
    return not has_ended(journal) and kinds[-1:] == ["run_paused"]


def has_expired(journal: Journal) -> bool:
    """Return whether all old files of a run were deleted.

    They were not if a paused run has changed units since then, or if units with an open problem were left.
    """
    steps = [record for record in journal.records if record.kind in (*_NEW_FILES, "run_expired")]
    return bool(steps) and steps[-1].kind == "run_expired" and not RunExpired.from_dict(steps[-1].fields).units_left
