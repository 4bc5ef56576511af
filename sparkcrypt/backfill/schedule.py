"""How many units are worked on at the same time, until which budget is spent, and what becomes of those that fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.survey import UnitSurvey
from sparkcrypt.errors import (
    BridgeError,
    ConfigError,
    KeyServiceUnavailableError,
    RunConflictError,
    SourceChangedError,
    SparkcryptError,
)

ENDS_THE_RUN = (RunConflictError, KeyServiceUnavailableError, BridgeError, ConfigError)
"""What is not one unit's fault: going on with the next one would end the same way, or do harm."""


class Budget:
    """How much may be rewritten, and for how long units may be begun; shared by all tables of a pass.

    A unit that is begun is finished, and the first is begun whatever its size, so that every pass comes further.

    Args:
        max_bytes: length of the files to rewrite, in bytes; None is without limit.
        max_seconds: after which no unit is begun; None is without limit.
        clock: seconds.
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
        """Take so many bytes from the budget, if they are in it."""
        with self._mutex:
            over = self._max_bytes is not None and self._bytes + total_bytes > self._max_bytes
            late = self._end is not None and self._clock() >= self._end
            if self._begun and (over or late):
                return False
            self._begun += 1
            self._bytes += total_bytes
            return True

    def give_back(self, total_bytes: int) -> None:
        """Put back what a unit had taken that could not be done, so that it does not keep others from being begun."""
        with self._mutex:
            self._begun -= 1
            self._bytes -= total_bytes


@dataclass(frozen=True, slots=True)
class FailedUnit:
    """A unit that was left as it was, and why: the error's class name and message."""

    name: str
    error: str
    message: str

    def to_dict(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {"unit": self.name, "error": self.error, "message": self.message}


@dataclass(slots=True)
class Done:
    """What became of some units: swapped, left as they were for a reason, busy, or not begun for want of budget."""

    outcomes: list[UnitOutcome] = field(default_factory=list)
    failed: list[FailedUnit] = field(default_factory=list)
    busy: list[tuple[UnitSurvey, SourceChangedError]] = field(default_factory=list)
    left: list[UnitSurvey] = field(default_factory=list)


def work_through(
    units: Sequence[UnitSurvey],
    process: Callable[[UnitSurvey], UnitOutcome | None],
    *,
    parallelism: int = 1,
    budget: Budget | None = None,
    keep_going: bool = False,
) -> Done:
    """Process units, several at the same time.

    Args:
        units: in the order in which they are begun.
        process: takes one unit from listed to swapped; None when nothing was left to do.
        parallelism: how many at the same time.
        budget: what may be spent; without limit by default.
        keep_going: a unit that fails is left as it was, and the next one is begun; else its error ends the run.

    Raises:
        SparkcryptError: what ended the run; units that were begun are finished before.
    """
    done, budget = Done(), budget or Budget()
    with ThreadPoolExecutor(parallelism, thread_name_prefix="unit") as pool:
        slots = threading.Semaphore(parallelism)
        stopped = threading.Event()
        running: list[tuple[UnitSurvey, Future[UnitOutcome | None]]] = []

        def one(unit: UnitSurvey) -> UnitOutcome | None:
            try:
                return process(unit)
            except BaseException as error:
                if keep_going and _of_one_unit(error):
                    budget.give_back(unit.total_bytes)
                else:
                    stopped.set()
                raise
            finally:
                slots.release()

        for place, unit in enumerate(units):
            slots.acquire()  # released in the thread that ends the unit
            if stopped.is_set():
                slots.release()
                break
            if not budget.allows(unit.total_bytes):
                slots.release()
                done.left.extend(units[place:])
                break
            running.append((unit, pool.submit(one, unit)))
        _gather(done, running, keep_going)
    return done


def _gather(done: Done, running: Iterable[tuple[UnitSurvey, Future[UnitOutcome | None]]], keep_going: bool) -> None:
    first: BaseException | None = None
    for unit, future in running:
        error = future.exception()
        if error is None:
            outcome = future.result()
            done.outcomes.extend([] if outcome is None else [outcome])
        elif keep_going and isinstance(error, SourceChangedError):
            done.busy.append((unit, error))
        elif keep_going and _of_one_unit(error):
            done.failed.append(FailedUnit(unit.name, type(error).__name__, str(error)))
        else:
            first = first or error
    if first is not None:
        raise first


def _of_one_unit(error: BaseException) -> bool:
    return isinstance(error, SparkcryptError) and not isinstance(error, ENDS_THE_RUN)
