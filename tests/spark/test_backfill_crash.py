"""Passes whose driver dies at each step, and again while it recovers, under the eyes of a reader who never stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparkcrypt import verify_table
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import STEPS, Clock, after_record, after_swap, kill_during
from tests.spark.support import Lake, rows_of
from tests.spark.tables import PARTITIONED, tagged

pytestmark = [pytest.mark.spark, pytest.mark.slow]

AGAIN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "run_resumed": after_record("run_resumed"),
    "unit_staged": after_record("unit_staged"),
    "the swap": after_swap,
}


class Reader(threading.Thread):
    """Reads the table in a session of its own until it is told to stop, and keeps what was not as it must be."""

    def __init__(self, lake: Lake, policy: Policy, expected: list[Any]) -> None:
        """Take what to expect."""
        super().__init__(daemon=True)
        self._session, self._table, self._expected = lake.spark.newSession(), lake.name("t"), expected
        self._stopped = threading.Event()
        self.looks, self.wrong = 0, list[str]()

    def run(self) -> None:
        """Look again and again."""
        while not self._stopped.is_set():
            try:
                self._session.catalog.refreshTable(self._table)
                if rows_of(self._session.table(self._table)) != self._expected:
                    self.wrong.append("other rows")
            except Exception as error:  # noqa: BLE001  # whatever a reader meets is what this looks for
                self.wrong.append(str(error).splitlines()[0])
            self.looks += 1

    def stop(self) -> None:
        """End, after the look that is under way."""
        self._stopped.set()
        self.join(60)


@contextmanager
def looked_at(lake: Lake, policy: Policy, expected: list[Any]) -> Iterator[None]:
    """Have a reader look at the table during the block, who must find nothing wrong."""
    reader = Reader(lake, policy, expected)
    reader.start()
    try:
        yield
    finally:
        reader.stop()
    assert reader.looks > 0
    assert reader.wrong == []


def killed(lake: Lake, policy: Policy, clock: Clock, patch: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Run a pass until the patch kills it, without tidying; then let its lock expire."""
    options = PassOptions(run=RunOptions(keep_going=True, parallelism=1))
    kill_during(lambda: backfill(lake.spark, policy, tables=["t"], options=options), clock, patch)


@pytest.mark.usefixtures("unit_a_batch")
@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("step", STEPS)
def test_driver_that_dies_twice_loses_nothing(
    lake: Lake,
    clock: Clock,
    step: str,
    again: str,
) -> None:
    """Killed after a step, and once more as it goes on: readers never see other rows, and the third try ends well."""
    policy, before = tagged(lake, PARTITIONED["using"])
    with looked_at(lake, policy, before):
        killed(lake, policy, clock, STEPS[step])
        killed(lake, policy, clock, AGAIN[again])
        report = backfill(lake.spark, policy, tables=["t"])
    assert report.outcome == "done"
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_retagged_table_is_read_throughout(lake: Lake) -> None:
    """A re-keying pass under a reader: he finds every row under the old key, the new one, and in between."""
    policy, before = tagged(lake, PARTITIONED["using"])
    policy = lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n")
    backfill(lake.spark, policy, tables=["t"])
    with looked_at(lake, policy, before):
        for tag in ("finance", "pii", "finance"):
            set_tags(lake.spark, "t", {"email": [tag]}, policy)
            assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    assert verify_table(lake.spark, "t", policy).ok
