"""The status of each unit of a run, derived from the run's journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.journal import UNIT_KINDS, Record
from sparkcrypt.ledger.journal.later_entries import UnitCarried, UnitCarrying, UnitResolved
from sparkcrypt.ledger.outcome import UnitOutcome
from sparkcrypt.ledger.unit import Unit, base_location
from sparkcrypt.ledger.unit_record import describe_archived, restore_place, restore_unit

SWAPPED = ("unit_swapped", "unit_moved", "unit_rolling_back")
"""Steps after which a unit's new files are in use; they still are if a rollback was only begun."""


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """The status of a unit: its last step, and what was recorded on the way.

    Attributes:
        step: the kind of its last record, apart from records of reconciled files, of resolved problems and of a table
            that moved, which do not change the swap.
        fields: the fields of its last record, merged over those of the earlier steps, as JSON values.  A unit that
            failed has only the fields of its failure: its staged files may no longer exist, or be in use.
        failed_at: the status in which it failed; None if it did not fail.
        carried_fields: the fields of records of reconciled late commits, oldest first.
        carrying_fields: the same, of reconciliations that were begun.
        resolved_fields: the fields of the latest decision on a problem.
        decided_after: the number of ``carried`` before that decision.
    """

    step: str
    fields: Mapping[str, Any]
    failed_at: UnitStatus | None = None
    carried_fields: tuple[Mapping[str, Any], ...] = ()
    carrying_fields: tuple[Mapping[str, Any], ...] = ()
    resolved_fields: Mapping[str, Any] | None = None
    decided_after: int = 0

    @property
    def swapped(self) -> bool:
        """Whether the unit's new files are in use."""
        return self.step in SWAPPED

    @property
    def unit(self) -> Unit:
        """The unit as listed at the start of the attempt.

        Raises:
            VerificationError: the journal is archived, so its files are not listed.
        """
        return restore_unit(str(self.fields["unit"]), self.fields)

    @property
    def place(self) -> Unit:
        """The unit without its files, which an archived journal has too."""
        return restore_place(str(self.fields["unit"]), self.fields)

    @property
    def location(self) -> str:
        """The unit's folder when it was listed."""
        return str(self.fields["location"])

    @property
    def partition_path(self) -> str:
        """Its partition's folders below the table; empty if it has none."""
        return str(self.fields.get("partition_path", ""))

    @property
    def staged(self) -> str:
        """The folder where its new files were made."""
        return str(self.fields["staged"])

    @property
    def base(self) -> str:
        """The table's original folder, as of the unit's listing or its last move with the table."""
        return str(self.fields.get("base") or base_location(self.staged))

    @property
    def evidence(self) -> Mapping[str, Any]:
        """The old files from which its new ones were made, in the audit's form; empty if nothing was verified.

        Raises:
            VerificationError: it was swapped, and the journal is archived, so its files are not listed.
        """
        if self.was_swapped and "files" not in self.fields:
            raise VerificationError(describe_archived(str(self.fields["unit"])))
        evidence: Mapping[str, Any] = self.fields.get("evidence", {})
        return evidence

    @property
    def was_swapped(self) -> bool:
        """Whether it was swapped, even if its old files are in use again."""
        return "outcome" in self.fields

    @property
    def outcome(self) -> UnitOutcome:
        """The outcome of its swap.

        Raises:
            VerificationError: no outcome is recorded, or one that no release wrote.
        """
        return UnitOutcome.from_dict(self.fields.get("outcome", {}))

    @property
    def old_location(self) -> str:
        """The folder of the old files after its swap, or after they were moved."""
        return str(self.fields["outcome"]["old_location"])

    @property
    def new_location(self) -> str:
        """The folder of the new files after its swap."""
        return str(self.fields["outcome"]["new_location"])

    @property
    def error(self) -> str | None:
        """The class name and message of the error by which it failed; None if it did not fail."""
        return self.fields.get("error")

    @property
    def carried(self) -> tuple[UnitCarried, ...]:
        """The reconciled late commits, oldest first."""
        return tuple(UnitCarried.from_dict(fields) for fields in self.carried_fields)

    @property
    def carrying(self) -> tuple[UnitCarrying, ...]:
        """The reconciliations that were begun, oldest first; the last may not be finished."""
        return tuple(UnitCarrying.from_dict(fields) for fields in self.carrying_fields)

    @property
    def resolved(self) -> UnitResolved | None:
        """The latest decision on a problem of the unit; None if there is none."""
        return None if self.resolved_fields is None else UnitResolved.from_dict(self.resolved_fields)

    @property
    def is_carrying(self) -> bool:
        """Whether a reconciliation was begun and has no record of its end."""
        return len(self.carrying_fields) > len(self.carried_fields)


def status_of_units(records: Iterable[Record]) -> dict[str, UnitStatus]:
    """Return the status of each unit, in the order in which the units were first listed."""
    statuses: dict[str, UnitStatus] = {}
    for record in records:
        if record.kind in UNIT_KINDS:
            unit = str(record.fields["unit"])
            statuses[unit] = _follow(record, statuses.get(unit))
    return statuses


def _follow(record: Record, before: UnitStatus | None) -> UnitStatus:
    if record.kind == "unit_failed":
        return UnitStatus(record.kind, record.fields, before)
    if before is not None and record.kind == "unit_resolved":
        return replace(before, resolved_fields=record.fields, decided_after=len(before.carried_fields))
    if before is None or before.failed_at is not None or record.kind == "unit_listed":
        return UnitStatus(record.kind, record.fields)
    if record.kind == "unit_carrying":
        return replace(before, carrying_fields=(*before.carrying_fields, record.fields))
    if record.kind == "unit_carried":
        return replace(before, carried_fields=(*before.carried_fields, record.fields))
    if record.kind == "unit_relocated":
        return replace(before, fields={**before.fields, **record.fields})
    return replace(before, step=record.kind, fields={**before.fields, **record.fields})
