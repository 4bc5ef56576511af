"""Measurement of a pass: records its progress over time, and forwards it to another progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sparkcrypt.backfill.many.report import Point
from sparkcrypt.backfill.report.progress import Progress

MOST_POINTS = 1_000


class PassProgress:
    """A progress that records points in time; units may end in several threads.

    Args:
        shown: the progress to which everything is forwarded.
        clock: returns the time in seconds.
    """

    def __init__(self, shown: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown, self._clock, self._began = shown, clock, clock()
        self._mutex = threading.Lock()
        self._files = self._bytes = 0
        self.points: list[Point] = [Point(0.0, 0, 0)]

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Forward the start of a run."""
        self._shown.start(target, units, files, total_bytes)

    def step(self, unit: str, step: str) -> None:
        """Forward the step of a unit."""
        self._shown.step(unit, step)

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Record and forward further files, bytes and units."""
        with self._mutex:
            self._files, self._bytes = self._files + files, self._bytes + total_bytes
            self.points.append(Point(round(self._clock() - self._began, 3), self._files, self._bytes))
            if len(self.points) > MOST_POINTS:  # keep every second point, and the last
                self.points = [*self.points[:-1:2], self.points[-1]]
            self._shown.advance(files, total_bytes, units)

    def finish(self) -> None:
        """Forward the end of a run."""
        self._shown.finish()
