"""Runs over a table of which neither metastore nor files exist: what they read of the log, and how recovery grows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.synthesised import Metastore, Store, policy_in, run_over, take_their_place
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.runs.rewrite.run_report import Report
from tests.growth import Work, assert_linear


@contextmanager
def counted_calls(owner: type, name: str, counts: Counter[str]) -> Iterator[None]:
    """Count the calls of a method in the block, by their first argument."""
    with pytest.MonkeyPatch.context() as patched:
        real = getattr(owner, name)

        def call(self: object, *arguments: object) -> object:
            counts[f"{name} {arguments[0]}"] += 1
            return real(self, *arguments)

        patched.setattr(owner, name, call)
        yield


def test_run_reads_each_object_of_the_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with nothing to do looks at a log in many places, and it may be long: only who holds the lock appends."""
    store, policy = Store(3, 2), policy_in(str(tmp_path))
    take_their_place(store, monkeypatch.setattr)
    assert run_over(store, policy).outcome == "done"
    for _ in range(2):
        counts = Counter[str]()
        with counted_calls(LocalStateStore, "read", counts):
            report = run_over(store, policy)
        assert (report.outcome, report.files_skipped) == ("nothing to do", 6)
        read = {name: count for name, count in counts.items() if name.startswith("read log/")}
        assert read and set(read.values()) == {1}, read


@pytest.mark.parametrize("applied", [True, False], ids=["swapped", "not swapped"])
def test_cost_of_recovery_grows_with_the_units_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    """A driver was killed at the call that swaps a batch, which the metastore carried out or did not get."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    reports = list[Report]()

    def prepare(units: int) -> Work:
        (tmp_path / f"{units}").mkdir()
        store, policy = Store(units, 1, file_bytes=1_000_000), policy_in(str(tmp_path / f"{units}"))
        take_their_place(store, monkeypatch.setattr)
        swap = Metastore.move_partitions

        def die(*arguments: Any) -> None:
            if applied:
                swap(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(Metastore, "move_partitions", die)
            run_over(store, policy)
        assert len(store.places) == (units if applied else 0)
        return lambda: reports.append(run_over(store, policy))

    assert_linear(prepare, 30, most=2.2)
    assert [(report.outcome, len(report.units)) for report in reports] == [("done", 30), ("done", 60), ("done", 120)]
