"""The progress of a run on stderr: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from sparkcrypt.backfill.progress import Progress
from sparkcrypt.cli.output import counted, say, size

QUIET_SECONDS = 5.0


def progress_on_stderr() -> Progress:
    """Return what suits stderr: a bar where a person looks at it, lines where a file collects it."""
    return BarProgress() if sys.stderr.isatty() else LineProgress()


class BarProgress:
    """One bar: files, bytes, rate, time left, and the unit's current step."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[files]}/{task.fields[files_total]} files"),
            TextColumn("{task.fields[bytes]}"),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._files = self._files_total = 0
        self._bytes = self._bytes_total = 0

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Show the bar; nothing when nothing is to do."""
        if not files:
            return
        self._files_total, self._bytes_total = files, total_bytes
        self._task = self._bars.add_task(target, total=total_bytes or 1, files=0, files_total=files, bytes="")
        self._bars.start()

    def step(self, unit: str, step: str) -> None:
        """Show the unit and its step."""
        self._bars.update(self._task, description=f"{unit}: {step}")

    def advance(self, files: int, total_bytes: int) -> None:
        """Move the bar."""
        self._files, self._bytes = self._files + files, self._bytes + total_bytes
        amount = f"{size(self._bytes)} of {size(self._bytes_total)}"
        self._bars.update(self._task, advance=total_bytes, files=self._files, bytes=amount)

    def finish(self) -> None:
        """Take the bar away."""
        self._bars.stop()


class LineProgress:
    """One line a step, and at most one every few seconds of how far the run is.

    Args:
        say: writes a line; to stderr by default.
        clock: seconds.
    """

    def __init__(self, say: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._files = self._files_total = 0
        self._bytes = self._bytes_total = 0
        self._started = self._told = 0.0

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Say what is to do."""
        self._files_total, self._bytes_total = files, total_bytes
        self._started = self._told = self._clock()
        what = f"{counted(files, 'file')}, {size(total_bytes)} in {counted(units, 'unit')}"
        self._say(f"{target}: {what} to rewrite" if files else f"{target}: nothing to do")

    def step(self, unit: str, step: str) -> None:
        """Say the unit and its step."""
        self._say(f"{unit}: {step}")

    def advance(self, files: int, total_bytes: int) -> None:
        """Say how far the run is, unless it was said just now."""
        self._files, self._bytes = self._files + files, self._bytes + total_bytes
        now = self._clock()
        if now - self._told < QUIET_SECONDS and self._files < self._files_total:
            return
        self._told = now
        rate = self._bytes / max(now - self._started, 0.001)
        left = (self._bytes_total - self._bytes) / rate if rate else 0.0
        self._say(
            f"{self._files} of {counted(self._files_total, 'file')}, {size(self._bytes)} of {size(self._bytes_total)}, "
            f"{size(rate)}/s, {left:.0f} s left"
        )

    def finish(self) -> None:
        """Say nothing more."""
