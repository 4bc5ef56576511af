"""Notes how far a pass has come, and when, and hands everything on to whoever shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sparkcrypt.backfill.many.report import Point
from sparkcrypt.backfill.report.progress import Progress

MOST_POINTS = 1_000


class Meter:
    """A progress that remembers; units may end in several threads.

    Args:
        shown: hears everything too.
        clock: seconds.
    """

    def __init__(self, shown: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown, self._clock, self._began = shown, clock, clock()
        self._mutex = threading.Lock()
        self._files = self._bytes = 0
        self.points: list[Point] = [Point(0.0, 0, 0)]

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """A run knows what is to do."""
        self._shown.start(target, units, files, total_bytes)

    def step(self, unit: str, step: str) -> None:
        """A unit enters a step."""
        self._shown.step(unit, step)

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """So much more is done."""
        with self._mutex:
            self._files, self._bytes = self._files + files, self._bytes + total_bytes
            self.points.append(Point(round(self._clock() - self._began, 3), self._files, self._bytes))
            if len(self.points) > MOST_POINTS:  # every second one tells nearly as much
                self.points = [*self.points[:-1:2], self.points[-1]]
            self._shown.advance(files, total_bytes, units)

    def finish(self) -> None:
        """A run is over."""
        self._shown.finish()
