"""How far each unit of a run has come, by the run's journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkcrypt.backfill.journal.journal import UNIT_KINDS, Record
from sparkcrypt.backfill.journal.later_entries import UnitCarried, UnitCarrying, UnitResolved
from sparkcrypt.backfill.report.outcome import UnitOutcome
from sparkcrypt.backfill.target.record import restore_unit
from sparkcrypt.backfill.target.unit import Unit, base_location

SWAPPED = ("unit_swapped", "unit_moved", "unit_rolling_back")
"""Steps after which a unit's new files are in use; they still are when a rollback was only begun."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """How far a unit has come.

    Attributes:
        step: kind of its last record, less those that tell of reconciled files, or of a table that moved, which change
            nothing of the swap.
        fields: those of its last record, over those of the steps that led there, as JSON values.  A unit that failed
            has the fields of its failure alone: what it had staged may be gone, or be in use.
        failed_at: the state in which it failed; None when it did not.
        carried_fields: what was recorded of reconciled late commits, oldest first; ``carrying_fields`` the same of
            those that were begun.
        resolved_fields: what was decided last of a problem; ``decided_after`` tells how many of ``carried`` came
            before.
    """

    step: str
    fields: Mapping[str, Any]
    failed_at: UnitState | None = None
    carried_fields: tuple[Mapping[str, Any], ...] = ()
    carrying_fields: tuple[Mapping[str, Any], ...] = ()
    resolved_fields: Mapping[str, Any] | None = None
    decided_after: int = 0

    @property
    def swapped(self) -> bool:
        """The unit's new files are in use."""
        return self.step in SWAPPED

    @property
    def unit(self) -> Unit:
        """The unit as it was listed."""
        return restore_unit(str(self.fields["unit"]), self.fields)

    @property
    def location(self) -> str:
        """Where the unit was when it was listed."""
        return str(self.fields["location"])

    @property
    def partition_path(self) -> str:
        """Its partition's folders below the table; empty where it has none."""
        return str(self.fields.get("partition_path", ""))

    @property
    def staged(self) -> str:
        """Where its new files were made."""
        return str(self.fields["staged"])

    @property
    def base(self) -> str:
        """The table's original folder when the unit was listed, or last seen to have moved with its table."""
        return str(self.fields.get("base") or base_location(self.staged))

    @property
    def evidence(self) -> Mapping[str, Any]:
        """Of which old files its new ones were made, in the audit's form; empty where nothing was proven."""
        evidence: Mapping[str, Any] = self.fields.get("evidence", {})
        return evidence

    @property
    def was_swapped(self) -> bool:
        """It has an outcome, though its old files may be in use again."""
        return "outcome" in self.fields

    @property
    def outcome(self) -> UnitOutcome:
        """What its swap came to.

        Raises:
            VerificationError: none is recorded, or not as a release does.
        """
        return UnitOutcome.from_dict(self.fields.get("outcome", {}))

    @property
    def old_location(self) -> str:
        """Where its swap left the old files, or a move has put them since."""
        return str(self.fields["outcome"]["old_location"])

    @property
    def new_location(self) -> str:
        """Where its swap has put the new files."""
        return str(self.fields["outcome"]["new_location"])

    @property
    def error(self) -> str | None:
        """Why it failed: the error's class name and message."""
        return self.fields.get("error")

    @property
    def carried(self) -> tuple[UnitCarried, ...]:
        """Reconciled files of late commits, oldest first."""
        return tuple(UnitCarried.from_dict(fields) for fields in self.carried_fields)

    @property
    def carrying(self) -> tuple[UnitCarrying, ...]:
        """The same as far as it was begun; that of the last may not be finished."""
        return tuple(UnitCarrying.from_dict(fields) for fields in self.carrying_fields)

    @property
    def resolved(self) -> UnitResolved | None:
        """What was decided last of a problem of it."""
        return None if self.resolved_fields is None else UnitResolved.from_dict(self.resolved_fields)

    @property
    def is_carrying(self) -> bool:
        """Reconciling a late commit was begun, and nothing says that it was finished."""
        return len(self.carrying_fields) > len(self.carried_fields)


def state_of_units(records: Iterable[Record]) -> dict[str, UnitState]:
    """Return how far each unit has come, in the order in which they were first listed."""
    states: dict[str, UnitState] = {}
    for record in records:
        if record.kind in UNIT_KINDS:
            unit = str(record.fields["unit"])
            states[unit] = _follow(record, states.get(unit))
    return states


def _follow(record: Record, before: UnitState | None) -> UnitState:
    if record.kind == "unit_failed":
        return UnitState(record.kind, record.fields, before)
    if before is not None and record.kind == "unit_resolved":
        return replace(before, resolved_fields=record.fields, decided_after=len(before.carried_fields))
    if before is None or before.failed_at is not None or record.kind == "unit_listed":
        return UnitState(record.kind, record.fields)
    if record.kind == "unit_carrying":
        return replace(before, carrying_fields=(*before.carrying_fields, record.fields))
    if record.kind == "unit_carried":
        return replace(before, carried_fields=(*before.carried_fields, record.fields))
    if record.kind == "unit_relocated":
        return replace(before, fields={**before.fields, **record.fields})
    return replace(before, step=record.kind, fields={**before.fields, **record.fields})
