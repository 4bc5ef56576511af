"""What became of one unit, as journals, audits and reports tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sparkcrypt.errors import VerificationError


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """A unit that was swapped.

    Attributes:
        name: the unit's.
        files: how many it had.
        rows: how many it has.
        bytes_before: length of its files before, in bytes.
        bytes_after: length of what replaced them.
        old_location: the folder that holds the old files.
        new_location: the folder that holds the new ones.
        verified: everything was checked before the swap.
        not_authenticated: what of the new files no key authenticates.
        codec: the compression of the new files; None where it was left to the engine.
        notes: what a person should know of it.
        engine: what wrote the new files.
        seconds: how long the unit took; None where a crash came between.
        finished: when it was swapped (ISO 8601, UTC); None where that was not written down.
        dark_columns: columns under shredded keys that were carried byte for byte: ``column``, ``key_id``, ``files`` and
            ``rows``.
        purged_columns: columns that nulls have replaced, likewise, with the keys that they had been under.
    """

    name: str
    files: int
    rows: int
    bytes_before: int
    bytes_after: int
    old_location: str
    new_location: str
    verified: bool
    not_authenticated: tuple[str, ...] = ()
    codec: str | None = None
    notes: tuple[str, ...] = ()
    engine: str = "spark"
    seconds: float | None = None
    finished: str | None = None
    dark_columns: tuple[Mapping[str, Any], ...] = ()
    purged_columns: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "unit": self.name,
            "files": self.files,
            "rows": self.rows,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "old_location": self.old_location,
            "new_location": self.new_location,
            "verified": self.verified,
            "not_authenticated": list(self.not_authenticated),
            "codec": self.codec,
            "notes": list(self.notes),
            "engine": self.engine,
            "seconds": self.seconds,
            "finished": self.finished,
            "dark_columns": [dict(column) for column in self.dark_columns],
            "purged_columns": [dict(column) for column in self.purged_columns],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UnitOutcome:
        """Return it from what a journal holds, which may be an earlier release's and lack the latest fields.

        Raises:
            VerificationError: it has not the shape of one: no release wrote it.
        """
        try:
            named: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
            }
            found = cls(name=named.pop("unit"), **named)
            if found.finished is not None:
                datetime.fromisoformat(found.finished)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise VerificationError(
                f"a unit's outcome is recorded as {values!r:.200}, which no release wrote; restore the state directory"
            ) from error
        return found
