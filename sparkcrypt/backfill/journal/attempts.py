"""The attempts that a run's journal tells of: what was listed, where its new files were made, how far each has come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sparkcrypt.backfill.journal.entries import Proven, UnitListed, UnitStaged, UnitVerified
from sparkcrypt.backfill.journal.journal import Record
from sparkcrypt.backfill.journal.unit_steps import UnitState
from sparkcrypt.backfill.target.unit import Folder


@dataclass(slots=True)
class Attempt:
    """One attempt at a unit.

    Attributes:
        name: the unit's.
        listed: its first record: the unit as it was, and where its new files were to be made.
        made: the new files as they were listed when they were written; None before that.
        records: all of its records, oldest first.
        newest: no later attempt at the unit is known.
    """

    name: str
    listed: UnitListed
    made: tuple[Folder, ...] | None = None
    records: list[Record] = field(default_factory=list)
    newest: bool = True

    @property
    def staged(self) -> str:
        """Where its new files were made."""
        return self.listed.staged

    @property
    def swapping(self) -> bool:
        """Its swap was about to happen: the driver may only be paused, and point the table to it when it wakes up."""
        return any(record.kind == "unit_swapping" for record in self.records)

    @property
    def proof(self) -> Proven | None:
        """What can be believed of its proof, without looking at the files again; None: nothing.

        A record that bears the audit's MAC was written by whoever had proven the files; without it, as release 0.1.0
        wrote them, whoever may write to the state directory could have made it up.
        """
        proven = [record for record in self.records if record.kind == "unit_verified"]
        last = self.records[-1].kind if self.records else ""
        if not self.newest or last not in ("unit_verified", "unit_swapping"):
            return None
        return UnitVerified.from_dict(proven[-1].fields).proven if proven and proven[-1].authenticated else None


def undone_attempts(records: Iterable[Record], states: Mapping[str, UnitState]) -> Iterator[tuple[str, Attempt]]:
    """Yield the attempts whose swap was begun and undone, each with its unit.

    Their folders may have been in use for a moment, and a writer that planned in it commits there whenever it ends.

    Args:
        records: of the run's journal.
        states: how far each unit has come by them.
    """
    for name, attempts in attempts_of(records).items():
        state = states[name]
        in_effect = state.staged if state.was_swapped else None
        for attempt in attempts:
            over = not attempt.newest or attempt.records[-1].kind == "unit_failed" or state.was_swapped
            if attempt.swapping and over and attempt.staged != in_effect:
                yield name, attempt


def attempts_of(records: Iterable[Record]) -> dict[str, list[Attempt]]:
    """Return unit -> its attempts, oldest first."""
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
