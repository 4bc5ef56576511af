"""The attempts that a run's journal tells of: what was listed, where its new files were made, how far each has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.backfill.journal import Record


@dataclass(slots=True)
class Attempt:
    """One attempt at a unit.

    Attributes:
        name: the unit's.
        listed: the fields of its first record: the unit as it was, and ``staged``.
        made: the new files as `unit_staged` lists them; None before that.
        records: all of its records, oldest first.
        newest: no later attempt at the unit is known.
    """

    name: str
    listed: Mapping[str, Any]
    made: list[Any] | None = None
    records: list[Record] = field(default_factory=list)
    newest: bool = True

    @property
    def staged(self) -> str:
        """Where its new files were made."""
        return str(self.listed["staged"])

    @property
    def swapping(self) -> bool:
        """Its swap was about to happen: the driver may only be paused, and point the table to it when it wakes up."""
        return any(one.kind == "unit_swapping" for one in self.records)

    @property
    def proof(self) -> Mapping[str, Any] | None:
        """What can be believed of its proof, without looking at the files again; None: nothing.

        A record that bears the audit's MAC was written by who had proven the files; without it, as release 0.1.0 wrote
        them, whoever may write to the state directory could have made it up.
        """
        proven = [one for one in self.records if one.kind == "unit_verified"]
        last = self.records[-1].kind if self.records else ""
        if not self.newest or last not in ("unit_verified", "unit_swapping"):
            return None
        return proven[-1].fields if proven and proven[-1].authenticated else None


def attempts_of(records: Iterable[Record]) -> dict[str, list[Attempt]]:
    """Return unit -> its attempts, oldest first."""
    found: dict[str, list[Attempt]] = {}
    for record in records:
        unit = record.fields.get("unit")
        if record.kind == "unit_listed" and "staged" in record.fields:
            for earlier in found.setdefault(str(unit), []):
                earlier.newest = False
            found[str(unit)].append(Attempt(str(unit), record.fields))
        if isinstance(unit, str) and unit in found:
            attempt = found[unit][-1]
            attempt.records.append(record)
            if record.kind == "unit_staged":
                attempt.made = list(record.fields["files"])
    return found
