"""Events as the tests give them to the log."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sparkcrypt.decide.access_log import Record, make_record

DAY = "2026-11-23"


def milliseconds(text: str) -> int:
    """Return a time of the tests' day, or with a date of its own, as milliseconds since 1970."""
    moment = text if "T" in text else f"{DAY}T{text}"
    return int(datetime.fromisoformat(moment).replace(tzinfo=timezone.utc).timestamp() * 1000)


def event(number: int, at: str = "12:00:00", **changes: Any) -> dict[str, Any]:
    """Return an event of a column that was read."""
    return {
        "kind": "access",
        "number": number,
        "first_ms": milliseconds(at),
        "last_ms": milliseconds(at),
        "count": 1,
        "principal": "ann",
        "application": "app-1",
        "execution": "7",
        "route": "sql",
        "table": "sales.customers",
        "key": "pii",
        "outcome": "opened",
        "columns": ["email"],
        **changes,
    }


def record(number: int, at: str = "12:00:00", process: str = "host-1", **changes: Any) -> Record:
    """Return the record of such an event."""
    return make_record(event(number, at, **changes), process=process)
