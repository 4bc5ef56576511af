"""The attempts at units in a run's journal: the listed unit, the folder of its new files, and the records of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sparkcrypt.ledger.journal.entries import Proven, UnitListed, UnitStaged, UnitVerified
from sparkcrypt.ledger.journal.journal import Record
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.unit import Folder


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
    records: list[Record] = field(default_factory=list)
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


def undone_attempts(records: Iterable[Record], statuses: Mapping[str, UnitStatus]) -> Iterator[tuple[str, Attempt]]:
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


def attempts_of(records: Iterable[Record]) -> dict[str, list[Attempt]]:
    """Return the name of each unit -> its attempts, oldest first."""
    found: dict[str, list[Attempt]] = {}
    for record in records:
        unit = record.unit
        if unit is not None and record.kind == "unit_listed" and record.staged is not None:
            for earlier in found.setdefault(unit, []):
                earlier.newest = False
            found[unit].append(Attempt(unit, UnitListed.from_dict(record.fields)))
        if unit in found:
            attempt = found[unit][-1]
            attempt.records.append(record)
            if record.kind == "unit_staged":
                attempt.made = UnitStaged.from_dict(record.fields).files
    return found
