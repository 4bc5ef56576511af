"""The entries of a journal: values here, JSON in the journal.

Every class has the record's ``kind``; ``to_dict`` returns the record's fields, ``from_dict`` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    describe_unit,
    restore_unit,
)

Fields: TypeAlias = Mapping[str, Any]
"""JSON values of a record."""


@dataclass(frozen=True, slots=True)
class Entry(JsonObject, json_names={"name": "unit", "source": "from"}):
    """An entry of a journal: its fields are the record's fields, with a unit's name under ``unit``."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class AuditHead(JsonObject):
    """The number of an audit's last entry, and the SHA-256 of that entry's bytes, which depends on all before it."""

    number: int
    digest: str

    def to_text(self) -> str:
        """Return the head as the value of ``--head``: ``NUMBER:DIGEST``."""
        return f"{self.number}:{self.digest}"

    @classmethod
    def from_text(cls, text: str) -> AuditHead | None:
        """Parse the text that `to_text` returns; None if it is not the head of an audit with entries."""
        match = re.fullmatch(r"([1-9]\d*):([0-9a-f]{64})", text)
        return None if match is None else cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class RunPaused(Entry):
    """The run waits to be continued; ``units_left`` is None if the units left were not counted."""

    kind: ClassVar[str] = "run_paused"
    units_left: int | None


@dataclass(frozen=True, slots=True)
class RunFinished(Entry):
    """The run has ended, with this outcome."""

    kind: ClassVar[str] = "run_finished"
    outcome: str


@dataclass(frozen=True, slots=True)
class UnitListed(Entry):
    """An attempt at a unit begins: the unit at that time, and the folder for its new files."""

    kind: ClassVar[str] = "unit_listed"
    unit: Unit
    staged: str

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        return {"unit": self.unit.name, "staged": self.staged, **describe_unit(self.unit)}

    @classmethod
    def from_dict(cls, fields: Fields) -> UnitListed:
        """Return the entry from a record's fields."""
        return cls(restore_unit(str(fields["unit"]), fields), str(fields["staged"]))


@dataclass(frozen=True, slots=True)
class UnitStaged(Entry):
    """The new files are written, but not verified yet."""

    kind: ClassVar[str] = "unit_staged"
    name: str
    staged: str
    made: tuple[Folder, ...]


@dataclass(frozen=True, slots=True)
class Proven:
    """The facts about new files that were verified.

    Attributes:
        rows: the number of rows in them.
        evidence: the old files from which they were made, in the audit's form.
        about: ``engine``, ``codec`` and ``notes`` of the work, as far as they are known.
    """

    rows: int
    evidence: Mapping[str, Any]
    about: Mapping[str, Any]

    @property
    def engine(self) -> str:
        """The engine that wrote the files."""
        return str(self.about.get("engine", "spark"))

    @property
    def codec(self) -> str | None:
        """Their compression."""
        return self.about.get("codec")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the files for the report."""
        return tuple(self.about.get("notes", ()))


@dataclass(frozen=True, slots=True)
class UnitVerified(Entry):
    """The new files are verified."""

    kind: ClassVar[str] = "unit_verified"
    name: str
    staged: str
    proven: Proven

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        proven = {"rows": self.proven.rows, "evidence": self.proven.evidence, "about": self.proven.about}
        return {"unit": self.name, "staged": self.staged, **proven}

    @classmethod
    def from_dict(cls, fields: Fields) -> UnitVerified:
        """Return the entry from a record's fields."""
        proven = Proven(int(fields["rows"]), fields["evidence"], fields.get("about", {}))
        return cls(str(fields["unit"]), str(fields["staged"]), proven)


@dataclass(frozen=True, slots=True)
class UnitSwapping(Entry):
    """The swap is about to happen."""

    kind: ClassVar[str] = "unit_swapping"
    name: str
    staged: str


@dataclass(frozen=True, slots=True)
class UnitSwapped(Entry):
    """The new files are in use; with the evidence in `UnitVerified` this is the audit's entry of it.

    Attributes:
        outcome: the outcome of the swap.
        table: the table's name at that time.
        policy_digest: the digest of the policy that was in force.
        predecessor: the id of the table in the place of which this one was made; None if there is none.
    """

    kind: ClassVar[str] = "unit_swapped"
    outcome: UnitOutcome
    table: str
    policy_digest: str
    predecessor: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        return {"unit": self.outcome.name, **Entry.to_dict(self)}


@dataclass(frozen=True, slots=True)
class UnitFailed(Entry):
    """The unit is unchanged; ``error`` is the error's class name and message."""

    kind: ClassVar[str] = "unit_failed"
    name: str
    error: str


@dataclass(frozen=True, slots=True)
class UnitMoved(Entry):
    """The old files were moved out of the table's folder."""

    kind: ClassVar[str] = "unit_moved"
    outcome: UnitOutcome

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        return {"unit": self.outcome.name, **Entry.to_dict(self)}


@dataclass(frozen=True, slots=True)
class UnitRelocated(Entry):
    """The unit's folders have new names, since its table was renamed; ``base`` is the table's new folder."""

    kind: ClassVar[str] = "unit_relocated"
    unit: Unit
    base: str
    outcome: UnitOutcome

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        known = {"unit": self.unit.name, "base": self.base, "outcome": self.outcome.to_dict()}
        return {**known, **describe_unit(self.unit)}


@dataclass(frozen=True, slots=True)
class UnitCarrying(Entry):
    """Files of a late commit are rewritten and verified, and about to be added to the unit's new files.

    Attributes:
        name: the unit's name.
        source: the old folder to which the late commit wrote.
        to: the folder of the unit's new files.
        files: the files of the late commit.
        staged: the folder where they were rewritten.
        made: the rewritten files.
        evidence: the files from which they were made, in the audit's form.
        rows: the number of rows in them.
        engine: the engine that wrote them.
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


@dataclass(frozen=True, slots=True)
class UnitCarried(Entry):
    """The rows of files that late commits wrote to the old folder ``source`` are in the table."""

    kind: ClassVar[str] = "unit_carried"
    name: str
    source: str
    files: tuple[Folder, ...]


@dataclass(frozen=True, slots=True)
class UnitResolved(Entry):
    """The operator has resolved a problem of the unit.

    Attributes:
        name: the unit's name.
        problem: the problem's name.
        keep: ``new`` or ``old``.
        listing: the files in the old folders at that time: ``old`` or ``original`` -> relative path and length of each
            file; ``undone`` for folders that were in use until a swap was undone; ``new`` for the new folder if files
            of the run were gone from it.
        given_up: the folder of the old files of a swap that was cut off, if the decision was against them; they may
            expire.  Empty if they are in use again, or the problem was another one.
        cut_off: whether the problem was a swap that was cut off.
    """

    kind: ClassVar[str] = "unit_resolved"
    name: str
    problem: str
    keep: str
    listing: Mapping[str, list[list[Any]]]
    given_up: str = ""
    cut_off: bool = False

    def accepts_missing(self, lost: Iterable[str]) -> bool:
        """Tell whether the decision was about new files that were gone, and these were among them."""
        return "new" in self.listing and not self.files_in("new").keys() & set(lost)

    def files_in(self, folder: str) -> dict[str, int]:
        """Return relative path -> length in bytes of the files in the ``old``, ``original`` or ``undone`` folder."""
        return {str(place): int(length) for place, length in self.listing.get(folder, ())}


@dataclass(frozen=True, slots=True)
class UnitRollingBack(Entry):
    """The unit's old files are about to be put back into use."""

    kind: ClassVar[str] = "unit_rolling_back"
    name: str


@dataclass(frozen=True, slots=True)
class UnitRolledBack(Entry):
    """The unit's old files are in use again, and the audit has an entry of it."""

    kind: ClassVar[str] = "unit_rolled_back"
    name: str


@dataclass(frozen=True, slots=True)
class RunRolledBack(Entry):
    """Units of the run were rolled back."""

    kind: ClassVar[str] = "run_rolled_back"
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunExpiring(Entry):
    """Folders of the run are about to be deleted; if that is cut off, some of them may be gone already."""

    kind: ClassVar[str] = "run_expiring"
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunExpired(Entry):
    """Folders of the run were deleted, except those of ``units_left``, which have an open problem."""

    kind: ClassVar[str] = "run_expired"
    folders: tuple[str, ...]
    units_left: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        left = {"units_left": list(self.units_left)} if self.units_left else {}
        return {"folders": list(self.folders), **left}

    @classmethod
    def from_dict(cls, fields: Fields) -> RunExpired:
        """Return the entry from a record's fields."""
        return cls(tuple(map(str, fields.get("folders", ()))), tuple(map(str, fields.get("units_left", ()))))
