"""Late commits: their files in folders that runs no longer use, and the resulting table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.support import SECRET, Lake


class OnAdvance(Progress):
    """A progress that calls an action once, when the first unit is done."""

    def __init__(self, action: Callable[[], None]) -> None:
        """Store the action."""
        self._actions = [action]

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Call the action once a unit is done, not when only a part of its files is."""
        while units and self._actions:
            self._actions.pop()()


def leave(lake: Lake, folder: Path, number: int) -> None:
    """Write one row into a folder, like a job that planned its write before the swap."""
    with lake.stranger() as stranger:
        frame = stranger.sql(f"SELECT {number} AS id, '{SECRET}-{number}' AS email, 'late' AS note")
        frame.coalesce(1).write.mode("append").parquet(str(folder))


def ids(lake: Lake) -> list[int]:
    """Return the ids in the table."""
    lake.spark.catalog.refreshTable("t")
    return sorted(row.id for row in lake.spark.table("t").collect())


def audits(lake: Lake, policy: Policy) -> list[str]:
    """Return the actions in the audit's entries."""
    store, uuid = open_state_store(policy.run_state), Catalog(lake.spark).table("t").uuid or ""
    return [signed.entry["what"] for signed in list_entries(store, uuid, None)]


class At(Progress):
    """A progress that calls an action once, when a unit enters a step."""

    def __init__(self, unit: str, step: str, what: Callable[[], Any]) -> None:
        self._when, self._what, self.done = (unit, step), what, False

    def step(self, unit: str, step: str) -> None:
        """Call the action."""
        if (unit, step) == self._when and not self.done:
            self.done = True
            self._what()
