"""How far a run as a whole has come, by its journal."""

from __future__ import annotations

from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.later_entries import RunExpired

_CHANGE_NO_UNIT = (
    *("run_resumed", "run_expired", "unit_carrying", "unit_carried", "unit_resolved", "unit_moved", "unit_relocated"),
)
"""What `expire` writes into the journal of a run; a driver that goes on with it writes other records too."""
_NEW_FILES = ("unit_swapped", "unit_moved", "unit_rolled_back")


def has_ended(journal: Journal) -> bool:
    """Tell whether a run came to its end."""
    return any(record.kind == "run_finished" for record in journal.records)


def is_paused(journal: Journal) -> bool:
    """Tell whether a run stopped at its budget, every unit done or as it was, and nobody has gone on with it since."""
    kinds = [record.kind for record in journal.records if record.kind not in _CHANGE_NO_UNIT]
    return not has_ended(journal) and kinds[-1:] == ["run_paused"]


def has_expired(journal: Journal) -> bool:
    """Tell whether all old files of a run were disposed of.

    Those of units that a paused run did since are not, nor those of units of which a problem was open.
    """
    told = [record for record in journal.records if record.kind in (*_NEW_FILES, "run_expired")]
    return bool(told) and told[-1].kind == "run_expired" and not RunExpired.from_dict(told[-1].fields).units_left
