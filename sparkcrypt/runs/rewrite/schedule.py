"""Scheduling of units: their order, batches, the budget, retries, and the handling of units that fail."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from sparkcrypt.errors import (
    BridgeError,
    ConfigError,
    KeyServiceUnavailableError,
    RunConflictError,
    SourceChangedError,
    SparkcryptError,
)
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.unit import UnitOutcome
from sparkcrypt.log_lines import log_as_here
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Outcome
from sparkcrypt.runs.table.unit_survey import UnitSurvey

ENDS_THE_RUN = (RunConflictError, KeyServiceUnavailableError, BridgeError, ConfigError)
"""Errors that are not specific to one unit: continuing with the next unit would fail too, or do harm."""
MOST_UNITS, MOST_FILES, MOST_BYTES = 64, 1_000, 1024 * 1024 * 1024
"""The most units, files and bytes of a batch; one larger unit is a batch of its own."""


class Budget:
    """A limit on how much is rewritten and on how long units may be begun; all tables of a pass share it.

    A unit that was begun is finished, and the first unit is begun regardless of its size, so that every pass makes
    progress.

    Args:
        max_bytes: the total length of the files to rewrite, in bytes; None means no limit.
        max_seconds: the time after which no unit is begun; None means no limit.
        clock: returns the time in seconds.

    Attributes:
        closed: whether no unit is begun any more, whatever the limits.
    """

    def __init__(
        self,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes, self._clock = max_bytes, clock
        self._end = None if max_seconds is None else clock() + max_seconds
        self._begun = 0
        self._bytes = 0
        self.closed = False
        self._mutex = threading.Lock()

    def allows(self, total_bytes: int) -> bool:
        """Take the bytes of a unit from the budget; tell whether it allowed that."""
        with self._mutex:
            over = self._max_bytes is not None and self._bytes + total_bytes > self._max_bytes
            late = self._end is not None and self._clock() >= self._end
            if self.closed or (self._begun and (over or late)):
                return False
            self._begun += 1
            self._bytes += total_bytes
            return True

    def close(self) -> None:
        """Allow no further unit, since the command ends; runs that are under way finish theirs, and pause."""
        self.closed = True

    def give_back(self, total_bytes: int) -> None:
        """Return the bytes of a unit that failed to the budget, so that other units can be begun."""
        with self._mutex:
            self._begun -= 1
            self._bytes -= total_bytes


@dataclass(frozen=True, slots=True)
class FailedUnit(JsonObject, json_names={"name": "unit"}):
    """A quarantined unit, with the class name and the message of its error."""

    name: str
    error: str
    message: str


@dataclass(slots=True)
class Progressed:
    """The units that a run has done, and those it has not; new files of ``unsettled`` units are in use but unproven."""

    outcomes: list[UnitOutcome] = field(default_factory=list)
    failed: list[FailedUnit] = field(default_factory=list)
    unsettled: list[FailedUnit] = field(default_factory=list)
    left: list[UnitSurvey] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """How the run ends."""
        if self.failed or self.unsettled:
            return "incomplete"
        if self.left:
            return "stopped at budget"
        return "done" if self.outcomes else "nothing to do"


Result: TypeAlias = UnitOutcome | BaseException | None
"""What became of a unit: its outcome, its error, or None if nothing was left to do."""
Process: TypeAlias = Callable[[Sequence[UnitSurvey]], Sequence[Result]]
_Running: TypeAlias = list[tuple[Sequence[UnitSurvey], "Future[Sequence[Result]]"]]


def work_through(
    units: Sequence[UnitSurvey],
    process: Process,
    locate: Callable[[list[UnitSurvey]], list[UnitSurvey]],
    options: RunOptions,
    *,
    pauses: Sequence[float] = (),
    budget: Budget | None = None,
) -> Progressed:
    """Process units in batches, several of these concurrently.

    Args:
        units: the units, in the order in which to begin them.
        process: takes the units of a batch from listed to swapped, and returns what became of each.
        locate: returns units with their present locations, before they are retried.
        options: how many batches to process concurrently; and whether to quarantine a unit that fails, retry one to
            which another process writes, and begin the next, or to end the run by the first error.
        pauses: how long to wait before each retry of units to which another process writes, in seconds.
        budget: unlimited by default.

    Raises:
        SparkcryptError: an error ended the run; units that were begun are finished first.
    """
    progressed, budget, todo = Progressed(), budget or Budget(), list(units)
    for pause in (*pauses, None):
        with ThreadPoolExecutor(options.parallelism, "unit", log_as_here()) as pool:
            running = _begin_units(pool, todo, process, progressed, options, budget)
        busy, error = _gather(running, progressed, options.keep_going)
        if error is not None:
            raise error
        if pause is None:
            progressed.failed.extend(_fail_unit(survey, why) for survey, why in busy)
        if pause is None or not busy:
            break
        time.sleep(pause)
        todo = locate([survey for survey, _ in busy])
    return progressed


def _begin_units(
    pool: ThreadPoolExecutor,
    units: Sequence[UnitSurvey],
    process: Process,
    progressed: Progressed,
    options: RunOptions,
    budget: Budget,
) -> _Running:
    """Begin units in their order, as many batches at once as allowed; begin none after an error that ends the run."""
    slots, running, todo = _Slots(options, budget), _Running(), deque(units)
    while todo:
        slots.acquire()
        batch = [] if slots.stopped.is_set() else _take_batch(todo, budget)
        if not batch:
            slots.wait_for_all()  # units that fail give their part of the budget back
            batch = [] if slots.stopped.is_set() else _take_batch(todo, budget)
        if not batch:
            progressed.left.extend([] if slots.stopped.is_set() else todo)
            break
        future = pool.submit(process, batch)
        running.append((batch, future))
        future.add_done_callback(partial(slots.end, batch))
    return running


class _Slots:
    """Slots for batches, each of which is given back at the batch's end, in its thread.

    Attributes:
        stopped: set after an error that ends the run.
    """

    def __init__(self, options: RunOptions, budget: Budget) -> None:
        self._options, self._budget = options, budget
        self._free, self.stopped = threading.Semaphore(options.parallelism), threading.Event()

    def acquire(self) -> None:
        """Take a slot, once one is free."""
        self._free.acquire()

    def wait_for_all(self) -> None:
        """Wait for the end of all batches, as who has taken the only slot besides theirs."""
        for _ in range(self._options.parallelism - 1):
            self._free.acquire()
        for _ in range(self._options.parallelism - 1):
            self._free.release()

    def end(self, batch: Sequence[UnitSurvey], future: Future[Sequence[Result]]) -> None:
        """Give the slot of a batch back, and to the budget what its failed units had of it."""
        try:
            if future.exception() is not None:
                self.stopped.set()
                return
            for unit, result in zip(batch, future.result(), strict=True):
                if isinstance(result, BaseException) and self._options.keep_going and _is_of_one_unit(result):
                    self._budget.give_back(unit.total_bytes)
                elif isinstance(result, BaseException):
                    self.stopped.set()
        finally:
            self._free.release()


def _take_batch(todo: deque[UnitSurvey], budget: Budget) -> list[UnitSurvey]:
    """Take the first units, as many as make a batch, and as the budget allows."""
    batch: list[UnitSurvey] = []
    files = total_bytes = 0
    while todo and len(batch) < MOST_UNITS:
        files, total_bytes = files + todo[0].amount.files, total_bytes + todo[0].total_bytes
        if batch and (files > MOST_FILES or total_bytes > MOST_BYTES):
            break
        if not budget.allows(todo[0].total_bytes):
            break
        batch.append(todo.popleft())
    return batch


def _gather(
    running: _Running, progressed: Progressed, keep_going: bool
) -> tuple[list[tuple[UnitSurvey, BaseException]], BaseException | None]:
    """Collect the outcomes of units; return the units to retry, and the first error that ends the run."""
    busy: list[tuple[UnitSurvey, BaseException]] = []
    ends: list[BaseException] = []
    for batch, future in running:
        error = future.exception()
        if error is not None:
            ends.append(error)
            continue
        for unit, result in zip(batch, future.result(), strict=True):
            if not isinstance(result, BaseException):
                progressed.outcomes.extend([] if result is None else [result])
            elif keep_going and isinstance(result, SourceChangedError):
                busy.append((unit, result))
            elif keep_going and _is_of_one_unit(result):
                progressed.failed.append(_fail_unit(unit, result))
            else:
                ends.append(result)
    return busy, next(iter(ends), None)


def _fail_unit(unit: UnitSurvey, error: BaseException) -> FailedUnit:
    return FailedUnit(unit.name, type(error).__name__, str(error))


def _is_of_one_unit(error: BaseException) -> bool:
    return isinstance(error, SparkcryptError) and not isinstance(error, ENDS_THE_RUN)


def order_units(units: Iterable[UnitSurvey], plan: EncryptionPlan, policy: Policy) -> list[UnitSurvey]:
    """Return the units of one table by the policy's order of the tags that drift; equal ones keep their order.

    Units with a file that the run will refuse, such as one that cannot be read, come last.
    """
    order = _places(policy)
    tags = {column.leaf.dotted: order.get(column.tag or "", len(order)) for column in plan.columns}

    def rank(unit: UnitSurvey) -> tuple[bool, int]:
        # Units that will be refused come last, so that they take no budget from those that can be done.
        first = min((_rank(drift.column, tags) for drift in unit.drift), default=len(order))
        return "quarantine" in unit.actions, first

    return sorted(units, key=rank)


def table_rank(plan: EncryptionPlan, policy: Policy) -> int:
    """Return the lowest position in the policy of a tag by which the table has encrypted columns."""
    order = _places(policy)
    return min((order.get(column.tag or "", len(order)) for column in plan.encrypted), default=len(order))


def _places(policy: Policy) -> dict[str, int]:
    return {rule.name: place for place, rule in enumerate(policy.tags)}


def _rank(column: str | None, tags: dict[str, int]) -> int:
    """Return the position of a drifting column's tag; drift of a whole file affects all of its columns."""
    if column is None:
        return min(tags.values(), default=0)
    return tags.get(column, len(tags))
