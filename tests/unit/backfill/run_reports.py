"""A report of a run, as runs make it."""

from __future__ import annotations

from typing import Any

from sparkcrypt.runs.rewrite.run_report import Report


def report(**changes: Any) -> Report:
    """A report of a run that encrypted two columns."""
    values: dict[str, Any] = {
        "table": "sales.customers",
        "run_id": "20261121T101112Z-3f9a2c",
        "engine": "spark",
        "files_total": 1200,
        "files_rewritten": 1000,
        "files_skipped": 200,
        "rows": 336776,
        "bytes_before": 5000000,
        "bytes_after": 5100000,
        "columns": {"ssn": "pii", "phones.list.element": "contact-2026-01"},
        "verified": True,
        "seconds": 61.26,
        "old_location": "/warehouse/customers",
        "new_location": "/.sparkcrypt/customers/run",
        "outcome": "done",
        "swap": "set location",
        "units": ({"unit": "p=1", "files": 1000, "rows": 336776},),
        "warnings": ("readers in flight fail",),
        "audit": {"number": 7, "digest": "ab12"},
    }
    return Report(**{**values, **changes})
