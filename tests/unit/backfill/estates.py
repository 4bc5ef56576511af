"""Statuses of all tables, made up, of which everything is known."""

from __future__ import annotations

from typing import Any

from sparkcrypt.runs.old_folders.old_folder import Awaiting
from sparkcrypt.runs.old_folders.problems import Problem
from sparkcrypt.runs.passes.estate import EarlierTable, EstateStatus, OverdueKey, TableStatus
from sparkcrypt.runs.passes.last_pass import Figures, LastPass, TagCoverage

SECRET = "day=2026-01-01"
"""The name of a unit, which has a value of a partition column."""


def figures(**changes: Any) -> Figures:
    """Return the figures of a table with drift of one kind."""
    values: dict[str, Any] = {
        "at": "2026-11-26T00:00:00Z", "files": 10, "drift": {"plaintext": 2}, "units_left": 1, "files_left": 2,
        "bytes_left": 20, "quarantined": 1, "coverage": {"pii": TagCoverage(10, 100, 8, 80)}, "untagged": False,
        "data_columns": 3, "key_calls": 4, "key_ids": ("pii",),
        "awaiting": None,
    }  # fmt: skip
    return Figures(**{**values, **changes})


def estate(name: str = "s.t", tables: int = 1, **changes: Any) -> EstateStatus:
    """Return the status of tables of which everything is known."""
    last = LastPass(name, "2026-11-26T00:00:00Z", "incomplete", None, "r1", 4.0, 2, 1000, None, figures())
    since = "2026-11-20T00:00:00+00:00"
    waiting = Awaiting(3, 300, 2, 200, since, beyond_grace=True, plaintext_since=since)
    open_problem = Problem("0123456789ab", name, "r1", SECRET, "rows came", "/old", message=f"{SECRET}: rows came")
    table = TableStatus(name, "id", last, (open_problem,), f"tags lost: {SECRET}", waiting, "2026-11-26T00:00:00Z")
    values: dict[str, Any] = {
        "at": "2026-11-27T00:00:00Z",
        "policy_digest": "d",
        "tables": (table, *(TableStatus(f"{name}{place}", "id", last) for place in range(1, tables))),
        "earlier": (EarlierTable(name, "before", None, None),),
        "overdue": (OverdueKey("pii", "2026-11-01T00:00:00Z", f"key {SECRET}"),),
    }
    return EstateStatus(**{**values, **changes})
