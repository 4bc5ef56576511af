"""How far each unit of a run has come, by the run's journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkcrypt.backfill.journal import UNIT_KINDS, Record

SWAPPED = ("unit_swapped", "unit_moved", "unit_rolling_back")
"""Steps after which a unit's new files are in use; what was only begun to be put back still is."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """How far a unit has come.

    Attributes:
        step: kind of its last record, less those that tell of files carried over, which change nothing of the swap.
        fields: those of its last record, over those of the steps that led there.  A unit that failed has the fields of
            its failure alone: what it had staged may be gone, or be in use.
        failed_at: the state in which it failed; None when it did not.
        carried: what was recorded of files that a stale writer had left and that were carried over, oldest first;
            ``carrying`` the same of those that were begun.
        resolved: what was decided last of a problem in favour of the new files; ``decided_after`` tells how many of
            ``carried`` came before.
    """

    step: str
    fields: Mapping[str, Any]
    failed_at: UnitState | None = None
    carried: tuple[Mapping[str, Any], ...] = ()
    carrying: tuple[Mapping[str, Any], ...] = ()
    resolved: Mapping[str, Any] | None = None
    decided_after: int = 0

    @property
    def swapped(self) -> bool:
        """The unit's new files are in use."""
        return self.step in SWAPPED


def state_of_units(records: Iterable[Record]) -> dict[str, UnitState]:
    """Return how far each unit has come, in the order in which they were first listed."""
    states: dict[str, UnitState] = {}
    for record in records:
        if record.kind in UNIT_KINDS:
            unit = str(record.fields["unit"])
            states[unit] = _after(record, states.get(unit))
    return states


def _after(record: Record, before: UnitState | None) -> UnitState:
    if record.kind == "unit_failed":
        return UnitState(record.kind, record.fields, before)
    if before is None or before.failed_at is not None or record.kind == "unit_listed":
        return UnitState(record.kind, record.fields)
    if record.kind == "unit_carrying":
        return replace(before, carrying=(*before.carrying, record.fields))
    if record.kind == "unit_carried":
        return replace(before, carried=(*before.carried, record.fields))
    if record.kind == "unit_resolved":
        return replace(before, resolved=record.fields, decided_after=len(before.carried))
    return replace(before, step=record.kind, fields={**before.fields, **record.fields})
