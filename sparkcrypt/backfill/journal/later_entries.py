"""What records hold that come after a swap: old files moved, late commits reconciled, problems, rollback, expiry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sparkcrypt.backfill.journal.entries import AuditHead, Entry, Fields
from sparkcrypt.backfill.report.outcome import UnitOutcome
from sparkcrypt.backfill.target.record import describe_unit, restore_folders
from sparkcrypt.backfill.target.unit import Folder, Unit


@dataclass(frozen=True, slots=True)
class UnitMoved(Entry):
    """The old files were moved out of the table's folder."""

    kind: ClassVar[str] = "unit_moved"
    outcome: UnitOutcome

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return {"unit": self.outcome.name, **Entry.to_dict(self)}


@dataclass(frozen=True, slots=True)
class UnitRelocated(Entry):
    """The unit's folders have other names, since its table was renamed; ``base`` is the table's folder now."""

    kind: ClassVar[str] = "unit_relocated"
    unit: Unit
    base: str
    outcome: UnitOutcome
    audit: AuditHead

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        known = {"outcome": self.outcome.to_dict(), "audit": self.audit.to_dict()}
        return {"unit": self.unit.name, "base": self.base, **known, **describe_unit(self.unit)}


@dataclass(frozen=True, slots=True)
class UnitCarrying(Entry):
    """Files of a late commit are rewritten and proven, and about to be put beside the unit's new ones.

    Attributes:
        name: the unit's.
        source: the old folder to which they came.
        to: the folder of the new files.
        files: what came.
        staged: where its new files were made.
        made: those new files.
        evidence: of which files they were made, in the audit's form.
        rows: how many they hold.
        engine: what wrote them.
    """

    kind: ClassVar[str] = "unit_carrying"
    name: str
    source: str
    to: str
    files: tuple[Folder, ...]
    staged: str
    made: tuple[Folder, ...]
    evidence: Mapping[str, Any]
    rows: int
    engine: str

    @classmethod
    def from_dict(cls, fields: Fields) -> UnitCarrying:
        """Return it from a record's fields."""
        return cls(
            name=str(fields["unit"]),
            source=str(fields["from"]),
            to=str(fields["to"]),
            files=restore_folders(fields["files"]),
            staged=str(fields["staged"]),
            made=restore_folders(fields["made"]),
            evidence=fields["evidence"],
            rows=int(fields["rows"]),
            engine=str(fields["engine"]),
        )


@dataclass(frozen=True, slots=True)
class UnitCarried(Entry):
    """The rows of files that came to the old folder ``source`` are in the table."""

    kind: ClassVar[str] = "unit_carried"
    name: str
    source: str
    files: tuple[Folder, ...]
    audit: AuditHead

    @classmethod
    def from_dict(cls, fields: Fields) -> UnitCarried:
        """Return it from a record's fields."""
        audit = AuditHead.from_dict(fields["audit"])
        return cls(str(fields["unit"]), str(fields["from"]), restore_folders(fields["files"]), audit)


@dataclass(frozen=True, slots=True)
class UnitResolved(Entry):
    """A person has decided a problem of the unit.

    Attributes:
        name: the unit's.
        problem: its name.
        keep: ``new`` or ``old``.
        listing: what was in the old folders then: ``old`` or ``original`` -> place and length of each file; ``undone``
            of those that were in use until a swap was undone.
    """

    kind: ClassVar[str] = "unit_resolved"
    name: str
    problem: str
    keep: str
    listing: Mapping[str, list[list[Any]]]

    @classmethod
    def from_dict(cls, fields: Fields) -> UnitResolved:
        """Return it from a record's fields."""
        return cls(str(fields["unit"]), str(fields["problem"]), str(fields["keep"]), fields["listing"])

    def files_in(self, folder: str) -> dict[str, int]:
        """Return place -> length in bytes of what was in the ``old``, the ``original`` or the ``undone`` folder."""
        return {str(place): int(length) for place, length in self.listing.get(folder, ())}


@dataclass(frozen=True, slots=True)
class UnitRollingBack(Entry):
    """The unit's old files are about to be put back into use."""

    kind: ClassVar[str] = "unit_rolling_back"
    name: str


@dataclass(frozen=True, slots=True)
class UnitRolledBack(Entry):
    """The unit's old files are in use again, and the audit says so."""

    kind: ClassVar[str] = "unit_rolled_back"
    name: str
    audit: AuditHead


@dataclass(frozen=True, slots=True)
class RunRolledBack(Entry):
    """Units of the run were rolled back."""

    kind: ClassVar[str] = "run_rolled_back"
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunExpired(Entry):
    """Folders of the run were deleted; those of ``units_left`` stay, since a problem of theirs is open."""

    kind: ClassVar[str] = "run_expired"
    folders: tuple[str, ...]
    units_left: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        left = {"units_left": list(self.units_left)} if self.units_left else {}
        return {"folders": list(self.folders), **left}

    @classmethod
    def from_dict(cls, fields: Fields) -> RunExpired:
        """Return it from a record's fields."""
        return cls(tuple(map(str, fields.get("folders", ()))), tuple(map(str, fields.get("units_left", ()))))
