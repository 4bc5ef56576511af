"""Amounts of data: a number of files, and their length."""

from __future__ import annotations

from dataclasses import dataclass

from sparkcrypt.json_objects import JsonObject


@dataclass(frozen=True, slots=True)
class Amount(JsonObject, json_names={"total_bytes": "bytes"}):
    """A number of files, and their total length in bytes."""

    files: int = 0
    total_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.files + other.files, self.total_bytes + other.total_bytes)
