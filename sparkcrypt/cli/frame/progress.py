"""Shows the progress of a run on stderr: as a bar on a terminal, else as lines of the log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from sparkcrypt.cli.frame.output import log, writes_json
from sparkcrypt.log_lines import log_about, log_place
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.text import count_of, replace_controls, size_of

QUIET_SECONDS = 5.0


def progress_on_stderr(work: str = "rewrite") -> Progress:
    """Return a bar if stderr is a terminal and the log has no JSON objects, else lines.

    Args:
        work: the verb for what is done to files.
    """
    return BarProgress() if sys.stderr.isatty() and not writes_json() else LineProgress(work=work)


@dataclass(slots=True)
class _Count:
    """The units, files and bytes of one run, in total and done."""

    units_total: int = 0
    files_total: int = 0
    bytes_total: int = 0
    units: int = 0
    files: int = 0
    total_bytes: int = 0

    def add(self, files: int, total_bytes: int, units: int) -> None:
        """Add what was done; negative amounts are undone work."""
        self.units += units
        self.files += files
        self.total_bytes += total_bytes

    @property
    def of_units(self) -> str:
        """The prefix with the units done and in total; empty if there are no units."""
        return f"{self.units:,} of {count_of(self.units_total, 'unit')}, " if self.units_total else ""

    @property
    def amount(self) -> str:
        """The bytes done and in total."""
        return f"{size_of(self.total_bytes)} of {size_of(self.bytes_total)}"


class _Bars:
    """Bars of the runs that are under way, which are on the screen while there is one."""

    def __init__(self, console: Console | None) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[amounts]}"),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._mutex = threading.Lock()
        self.update = self._bars.update

    def add(self, description: str, total: int, amounts: str) -> TaskID:
        """Show a further bar."""
        with self._mutex:
            task = self._bars.add_task(replace_controls(description), total=total, amounts=amounts)
            self._bars.start()
            return task

    def remove(self, task: TaskID) -> None:
        """Remove a bar; after the last one, none is left on the screen."""
        with self._mutex:
            if len(self._bars.tasks) == 1:
                self._bars.stop()
            self._bars.remove_task(task)

    def print(self, line: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(replace_controls(line), markup=False, highlight=False, soft_wrap=True)


class BarProgress(Progress):
    """One bar for each run: units, files, bytes, rate, time left, and the unit's current step.

    Args:
        console: where it is shown; stderr by default.
        prefix: what begins each description: the name of the table, where runs over several are under way.
        bars: the bars of these runs.
    """

    def __init__(self, console: Console | None = None, prefix: str = "", bars: _Bars | None = None) -> None:
        self._bars, self._prefix = bars or _Bars(console), prefix
        self._count = _Count()
        self._task: TaskID | None = None

    def of_run(self, target: str) -> Progress:
        """Return the progress of one of several runs, with a bar of its own."""
        return BarProgress(prefix=f"{target}: ", bars=self._bars)

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Show the bar of a new run, or no bar if there are no files."""
        self.finish()
        self._count = _Count(units, files, total_bytes)
        if files:
            self._task = self._bars.add(target, total_bytes or 1, self._amounts())

    def step(self, unit: str, step: str) -> None:
        """Show the unit and its step in the bar, or as a line if there is no bar."""
        line = _with_prefix(self._prefix, f"{unit}: {step}")
        if self._task is None:
            self._bars.print(line)
        else:
            self._bars.update(self._task, description=replace_controls(line))

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Move the bar."""
        self._count.add(files, total_bytes, units)
        if self._task is not None:
            self._bars.update(self._task, advance=total_bytes, amounts=self._amounts())

    def finish(self) -> None:
        """Remove the bar."""
        if self._task is not None:
            self._bars.remove(self._task)
            self._task = None

    def _amounts(self) -> str:
        count = self._count
        units = f"{count.units:,}/{count.units_total:,} units " if count.units_total else ""
        return f"{units}{count.files:,}/{count.files_total:,} files {count.amount}"


class LineProgress(Progress):
    """A line of the log for each step, and one with the progress at most every few seconds.

    Args:
        log: writes a line of the log, which is about the run, table and unit of `log_about`; to stderr by default.
        clock: returns the time in seconds.
        work: the verb for what is done to files.
        about: what every line is about.
    """

    def __init__(
        self,
        log: Callable[[str], None] = log,
        clock: Callable[[], float] = time.monotonic,
        *,
        work: str = "rewrite",
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._log, self._clock, self._work, self._about = log, clock, work, dict(about or {})
        self._count = _Count()
        self._started = self._told = clock()

    def of_run(self, target: str) -> Progress:
        """Return the progress of one of several runs, whose lines are about its target."""
        return LineProgress(self._log, self._clock, work=self._work, about={**self._about, "table": target})

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Write what there is to do, and reset the counts; further lines are about this target and run."""
        self._about = {**log_place(), "table": target}
        self._count = _Count(units, files, total_bytes)
        self._started = self._told = self._clock()
        parts = f" in {count_of(units, 'unit')}" if units else ""
        what = f"{count_of(files, 'file')}, {size_of(total_bytes)}{parts} to {self._work}"
        self._write(what if files else "nothing to do")

    def step(self, unit: str, step: str) -> None:
        """Write the unit's step."""
        self._write(step, unit)

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Write the progress, unless it was written in the last few seconds."""
        count, now = self._count, self._clock()
        count.add(files, total_bytes, units)
        if now - self._told < QUIET_SECONDS and count.files < count.files_total:
            return
        self._told = now
        rate = max(count.total_bytes, 0) / max(now - self._started, 0.001)
        seconds_left = max(count.bytes_total - count.total_bytes, 0) / rate if rate else 0.0
        self._write(
            f"{count.of_units}{count.files:,} of {count_of(count.files_total, 'file')}, {count.amount}, "
            f"{size_of(rate)}/s, {seconds_left:.0f} s left"
        )

    def finish(self) -> None:
        """Do nothing."""

    def _write(self, message: str, unit: str | None = None) -> None:
        about = {**self._about, **log_place()}
        of_unit = {} if unit is None or unit == about.get("table") else {"unit": unit}
        with log_about(**about, **of_unit):
            self._log(message)


def _with_prefix(prefix: str, line: str) -> str:
    """Return a line that begins with a prefix, which the names of some units have already."""
    return line if line.startswith(prefix) else prefix + line
