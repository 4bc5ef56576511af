"""Scheduling of units: their order, concurrency, the budget, retries, and the handling of units that fail."""

from __future__ import annotations

import threading
import time
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
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Outcome
from sparkcrypt.runs.table.unit_survey import UnitSurvey

ENDS_THE_RUN = (RunConflictError, KeyServiceUnavailableError, BridgeError, ConfigError)
"""Errors that are not specific to one unit: continuing with the next unit would fail too, or do harm."""


class Budget:
    """A limit on how much is rewritten and on how long units may be begun; all tables of a pass share it.

    A unit that was begun is finished, and the first unit is begun regardless of its size, so that every pass makes
    progress.

    Args:
        max_bytes: the total length of the files to rewrite, in bytes; None means no limit.
        max_seconds: the time after which no unit is begun; None means no limit.
        clock: returns the time in seconds.
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
        self._mutex = threading.Lock()

    def allows(self, total_bytes: int) -> bool:
        """Take the bytes of a unit from the budget; tell whether it allowed that."""
        with self._mutex:
            over = self._max_bytes is not None and self._bytes + total_bytes > self._max_bytes
            late = self._end is not None and self._clock() >= self._end
            if self._begun and (over or late):
                return False
            self._begun += 1
            self._bytes += total_bytes
            return True

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


_Running: TypeAlias = list[tuple[UnitSurvey, "Future[UnitOutcome | None]"]]


def work_through(
    units: Sequence[UnitSurvey],
    process: Callable[[UnitSurvey], UnitOutcome | None],
    locate: Callable[[list[UnitSurvey]], list[UnitSurvey]],
    options: RunOptions,
    *,
    pauses: Sequence[float] = (),
    budget: Budget | None = None,
) -> Progressed:
    """Process units, several of them concurrently.

    Args:
        units: the units, in the order in which to begin them.
        process: takes one unit from listed to swapped; returns None if nothing was left to do.
        locate: returns units with their present locations, before they are retried.
        options: how many units to process concurrently; and whether to quarantine a unit that fails, retry one to which
            another process writes, and begin the next, or to end the run by the first error.
        pauses: how long to wait before each retry of units to which another process writes, in seconds.
        budget: unlimited by default.

    Raises:
        SparkcryptError: an error ended the run; units that were begun are finished first.
    """
    progressed, budget, todo = Progressed(), budget or Budget(), list(units)
    for pause in (*pauses, None):
        with ThreadPoolExecutor(options.parallelism, thread_name_prefix="unit") as pool:
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
    process: Callable[[UnitSurvey], UnitOutcome | None],
    progressed: Progressed,
    options: RunOptions,
    budget: Budget,
) -> _Running:
    """Begin units in their order, as many at once as allowed; begin none after an error that ends the run."""
    slots, stopped, running = threading.Semaphore(options.parallelism), threading.Event(), _Running()

    def end(unit: UnitSurvey, future: Future[UnitOutcome | None]) -> None:
        error = future.exception()
        if error is not None and options.keep_going and _is_of_one_unit(error):
            budget.give_back(unit.total_bytes)
        elif error is not None:
            stopped.set()
        slots.release()

    for place, unit in enumerate(units):
        slots.acquire()  # released by `end`, in the unit's thread
        if stopped.is_set():
            break
        if not budget.allows(unit.total_bytes):
            progressed.left.extend(units[place:])
            break
        future = pool.submit(process, unit)
        running.append((unit, future))
        future.add_done_callback(partial(end, unit))
    return running


def _gather(
    running: _Running, progressed: Progressed, keep_going: bool
) -> tuple[list[tuple[UnitSurvey, BaseException]], BaseException | None]:
    """Collect the outcomes of units; return the units to retry, and the first error that ends the run."""
    busy: list[tuple[UnitSurvey, BaseException]] = []
    ends: list[BaseException] = []
    for unit, future in running:
        error = future.exception()
        if error is None:
            outcome = future.result()
            progressed.outcomes.extend([] if outcome is None else [outcome])
        elif keep_going and isinstance(error, SourceChangedError):
            busy.append((unit, error))
        elif keep_going and _is_of_one_unit(error):
            progressed.failed.append(_fail_unit(unit, error))
        else:
            ends.append(error)
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
