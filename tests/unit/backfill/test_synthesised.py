from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.synthesised import Store, policy_in, run_over, take_their_place
from sparkcrypt.ledger.state.store import LocalStateStore


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
