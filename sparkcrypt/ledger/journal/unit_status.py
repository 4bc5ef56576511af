"""The status of each unit of a run, of the attempts at it, and of the whole run, derived from the run's journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.entries import (
    Proven,
    UnitCarried,
    UnitCarrying,
    UnitListed,
    UnitResolved,
    UnitStaged,
    UnitVerified,
)
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.record import Fields, LogRecord
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    base_location,
    describe_archived,
    restore_place,
    restore_unit,
)

UNIT_KINDS = (
    *("unit_listed", "unit_staged", "unit_verified", "unit_swapping", "unit_swapped", "unit_moved", "unit_failed"),
    *("unit_carrying", "unit_carried", "unit_resolved", "unit_relocated", "unit_rolling_back", "unit_rolled_back"),
)
"""The kinds of records of a journal that are about a unit, which they name as ``unit``."""
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
    fields: Fields
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


def status_of_units(records: Iterable[LogRecord]) -> dict[str, UnitStatus]:
    """Return the status of each unit, in the order in which the units were first listed."""
    statuses: dict[str, UnitStatus] = {}
    for record in records:
        if record.kind in UNIT_KINDS:
            unit = str(record.fields["unit"])
            statuses[unit] = next_status(record, statuses.get(unit))
    return statuses


def next_status(record: LogRecord, before: UnitStatus | None) -> UnitStatus:
    """Return the status of a unit after a record of it.

    Args:
        record: the record.
        before: the unit's status by the records before it; None if it is the first.
    """
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
        return replace(before, fields=before.fields.updated(record.fields))
    return replace(before, step=record.kind, fields=before.fields.updated(record.fields))


@dataclass(slots=True)
class Attempt:
    """One attempt at a unit.

    Attributes:
        name: the unit's name.
        listed: its first record: the unit at that time, and the folder for its new files.
        made: the new files as listed after they were written; None before that.
        records: all of its records, oldest first.
        newest: whether it is the latest attempt at the unit.
    """

    name: str
    listed: UnitListed
    made: tuple[Folder, ...] | None = None
    records: list[LogRecord] = field(default_factory=list)
    newest: bool = True

    @property
    def staged(self) -> str:
        """The folder for its new files."""
        return self.listed.staged

    @property
    def new_files(self) -> NewFiles:
        """Its new files; without lengths if they were not listed."""
        return NewFiles.of_folders(self.listed.unit, self.staged, self.made or ())

    @property
    def swapping(self) -> bool:
        """Whether its swap was begun: a suspended driver may still point the table to its files when it resumes."""
        return any(record.kind == "unit_swapping" for record in self.records)

    @property
    def proof(self) -> Proven | None:
        """The proof of its files that can be used without reading them again; None if there is none.

        A record with the audit's MAC was written by a driver that had verified the files; one whose MAC was not checked
        could be forged by anyone who can write to the state directory.
        """
        proven = [record for record in self.records if record.kind == "unit_verified"]
        last = self.records[-1].kind if self.records else ""
        if not self.newest or last not in ("unit_verified", "unit_swapping"):
            return None
        return UnitVerified.from_dict(proven[-1].fields).proven if proven and proven[-1].authenticated else None


def undone_attempts(records: Iterable[LogRecord], statuses: Mapping[str, UnitStatus]) -> Iterator[tuple[str, Attempt]]:
    """Yield each attempt whose swap was begun and undone, with its unit's name.

    Its folder may have been in use for a moment, and a writer that planned in it then will still commit there.

    Args:
        records: the records of the run's journal.
        statuses: the status of each unit by these records.
    """
    for name, attempts in attempts_of(records).items():
        status = statuses[name]
        in_effect = status.staged if status.was_swapped else None
        for attempt in attempts:
            over = not attempt.newest or attempt.records[-1].kind == "unit_failed" or status.was_swapped
            if attempt.swapping and over and attempt.staged != in_effect:
                yield name, attempt


def attempts_of(records: Iterable[LogRecord]) -> dict[str, list[Attempt]]:
    """Return the name of each unit -> its attempts, oldest first."""
    found: dict[str, list[Attempt]] = {}
    for record in records:
        unit = record.unit
        if unit is not None and record.kind == "unit_listed" and record.staged is not None:
            attempts = found.setdefault(unit, [])
            for before in attempts[-1:]:
                before.newest = False
            attempts.append(Attempt(unit, UnitListed.from_dict(record.fields)))
        if unit in found:
            attempt = found[unit][-1]
            attempt.records.append(record)
            if record.kind == "unit_staged":
                attempt.made = UnitStaged.from_dict(record.fields).made
    return found
