"""The outcome of one unit's swap, in journals, audits and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.json_objects import JsonObject


@dataclass(frozen=True, slots=True)
class UnitOutcome(JsonObject, json_names={"name": "unit"}):
    """The outcome of a unit that was swapped.

    Attributes:
        name: the unit's name.
        files: the number of its old files.
        rows: the number of its rows.
        bytes_before: length of the old files, in bytes.
        bytes_after: length of the new files, in bytes.
        old_location: the folder of the old files.
        new_location: the folder of the new files.
        verified: whether the new files were fully verified before the swap.
        not_authenticated: the parts of the new files that no key authenticates.
        codec: the compression of the new files; None if it was left to the engine.
        notes: notes for the report.
        engine: the engine that wrote the new files.
        seconds: how long the unit took; None if the work was interrupted by a crash.
        finished: when it was swapped (ISO 8601, UTC); None if that was not recorded.
        dark_columns: columns under shredded keys that were copied byte for byte: ``column``, ``key_id``, ``files`` and
            ``rows``.
        purged_columns: columns that were replaced by nulls, in the same form, with their former keys.
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UnitOutcome:
        """Return the outcome from the values in a journal.

        Raises:
            VerificationError: no release writes such values.
        """
        try:
            named: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
            }
            found = cls(name=named.pop("unit"), **named)
            if found.finished is not None:
                datetime.fromisoformat(found.finished)
            numbers = (found.files, found.rows, found.bytes_before, found.bytes_after, found.seconds or 0)
            if not all(isinstance(number, int | float) for number in numbers):
                raise TypeError("a number is none")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise VerificationError(
                f"a unit's outcome is recorded as {values!r:.200}, which no release wrote; restore the state directory"
            ) from error
        return found
