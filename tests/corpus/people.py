"""The rows that every writer of the corpus writes once, so that their files can be one table."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

ROWS = 40


def people(rows: int = ROWS) -> dict[str, list[Any]]:
    """Return columns of flat and nested values, with nulls in all but the first."""
    numbers = range(rows)

    def some(values: list[Any], step: int) -> list[Any]:
        return [None if number % step == 2 else value for number, value in zip(numbers, values, strict=True)]

    start = datetime.datetime(2024, 2, 28, 23, 59, 58)
    return {
        "id": list(numbers),
        "email": some([f"user{number % 17}@example.org" for number in numbers], 5),
        "score": some([number / 7 for number in numbers], 7),
        "member": some([number % 3 == 0 for number in numbers], 11),
        "born": some([datetime.date(1950 + number, 1 + number % 12, 1 + number % 28) for number in numbers], 6),
        "seen": some([start + datetime.timedelta(hours=7 * number, microseconds=number) for number in numbers], 9),
        "owed": some([decimal.Decimal(number * 137 - 500) / 100 for number in numbers], 8),
        "phones": some([[f"+{number}{n}" for n in range(number % 4)] for number in numbers], 10),
        "home": some([{"city": f"city {number % 6}", "zip": 1000 + number} for number in numbers], 13),
    }


FLAT = ("id", "email", "score", "member", "born", "seen")
"""The columns that every writer has."""
