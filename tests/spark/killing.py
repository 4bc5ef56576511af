"""Runs that are killed at a step, and the clock by which their locks expire."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.lock import RunLock, acquire
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes import run as encrypt_module
from sparkcrypt.runs.rewrite import schedule, unit_rewriter
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.spark.files.hadoop import HadoopFiles
from tests.spark.support import Lake


class Killed(BaseException):
    """The simulated end of the process."""


@dataclass
class Clock:
    """The clock by which locks expire."""

    now: float = 1_000_000.0
    patches: list[Any] = field(default_factory=list)

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock for locks, and runs that end like a killed process: no clean-up, no release of the lock."""
    made = Clock()
    monkeypatch.setattr(encrypt_module, "acquire", functools.partial(acquire, clock=made))
    monkeypatch.setattr(RunLock, "keep_alive", lambda lock: None)
    yield made


@pytest.fixture
def unit_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each unit a batch of its own; with a parallelism of 1 they are taken one after the other."""
    monkeypatch.setattr(schedule, "MOST_UNITS", 1)


def kill(lake: Lake, policy: Policy, clock: Clock, patch: Callable[[pytest.MonkeyPatch], None], **options: Any) -> None:
    """Run the job until the patch kills it; then let its lock expire."""
    kill_during(lambda: encrypt_table(lake.spark, "t", policy, **options), clock, patch)


def kill_during(action: Callable[[], Any], clock: Clock, patch: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Call an action until the patch kills it, without clean-up; then let its lock expire."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(UnitRewriter, "_give_up", lambda *_: None)
        monkeypatch.setattr(RunLock, "release", lambda lock: None)
        patch(monkeypatch)
        with pytest.raises(Killed):
            action()
    clock.now += 1_000


def after_record(kind: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a patch that kills the run right after its first journal records of a kind."""
    append = Journal.append_all

    def appended(journal: Journal, records: Any) -> Any:
        appended = append(journal, records)
        if any(what == kind for what, _ in records):
            raise Killed
        return appended

    return lambda monkeypatch: monkeypatch.setattr(Journal, "append_all", appended)


def after_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the run when the first units were swapped and their swap is not recorded yet."""

    def record(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(unit_rewriter, "record_swaps", record)


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    **{kind: after_record(kind) for kind in ("unit_listed", "unit_staged", "unit_verified", "unit_swapping")},
    "the swap": after_swap,
    "unit_swapped": after_record("unit_swapped"),
}
"""Patches that kill a run after each step of its first unit."""


def after_swaps(monkeypatch: pytest.MonkeyPatch, way: type[Any], act: Callable[[Any, NewFiles], None]) -> None:
    """Act right after each unit was swapped, before anything else is done; ``act`` gets the swap and the unit."""
    swap_all = way.swap_all

    def swapped(self: Any, several: Sequence[NewFiles]) -> Any:
        failed = swap_all(self, several)
        for new in several:
            if new.unit.name not in failed:
                act(self, new)
        return failed

    monkeypatch.setattr(way, "swap_all", swapped)


def between_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the run when the old folder was renamed away and the new one was not renamed in."""
    rename = HadoopFiles.rename

    def renamed(files: HadoopFiles, source: str, target: str) -> None:
        rename(files, source, target)
        if "/old-" in target:
            raise Killed

    monkeypatch.setattr(HadoopFiles, "rename", renamed)
