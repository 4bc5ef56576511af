"""The entries of a journal, from the listing of units to the end of the run: values here, JSON in the journal.

Every class has the record's ``kind``; ``to_dict`` returns the record's fields, ``from_dict`` reads those of any
release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.outcome import UnitOutcome
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.ledger.unit_record import describe_folders, describe_unit, restore_folders, restore_unit

Fields: TypeAlias = Mapping[str, Any]
"""JSON values of a record."""


_KEYS = {"name": "unit", "source": "from"}
"""Names in a record of fields that have another name here."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a journal: its fields are the record's fields, with a unit's name under ``unit``."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        return {_KEYS.get(field.name, field.name): _to_json(getattr(self, field.name)) for field in fields(self)}


def _to_json(value: Any) -> Any:
    if isinstance(value, AuditHead | UnitOutcome):
        return value.to_dict()
    if isinstance(value, tuple):
        return describe_folders(value) if value and isinstance(value[0], Folder) else list(value)
    return value


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

    @classmethod
    def from_dict(cls, fields: Fields) -> AuditHead:
        """Return the head from the values that `to_dict` returns."""
        return cls(int(fields["number"]), str(fields["digest"]))


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
    files: tuple[Folder, ...]

    @classmethod
    def from_dict(cls, fields: Fields) -> UnitStaged:
        """Return the entry from a record's fields."""
        return cls(str(fields["unit"]), str(fields["staged"]), restore_folders(fields["files"]))


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
class UnitSwapping(UnitListed):
    """The swap is about to happen."""

    kind: ClassVar[str] = "unit_swapping"


@dataclass(frozen=True, slots=True)
class UnitSwapped(Entry):
    """The new files are in use, and the audit has an entry of it."""

    kind: ClassVar[str] = "unit_swapped"
    outcome: UnitOutcome
    audit: AuditHead

    def to_dict(self) -> dict[str, Any]:
        """Return the record's fields, as JSON values."""
        return {"unit": self.outcome.name, **Entry.to_dict(self)}


@dataclass(frozen=True, slots=True)
class UnitFailed(Entry):
    """The unit is unchanged; ``error`` is the error's class name and message."""

    kind: ClassVar[str] = "unit_failed"
    name: str
    error: str
