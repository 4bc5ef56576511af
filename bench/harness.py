"""Timing of processes, and reports that are stored and shown as tables."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
RUNS = 5
"""The number of figures for a median, unless one run takes minutes."""


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: what was measured, the figures of all runs, their unit, and the bar if there is one."""

    what: str
    unit: str
    figures: Sequence[float]
    bar: str = ""
    holds: bool | None = None

    @property
    def median(self) -> float:
        """The median of the figures."""
        return statistics.median(self.figures)


@dataclass
class Report:
    """The results of one benchmark."""

    name: str
    subject: str
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    least_runs: int = RUNS

    def add(self, what: str, unit: str, figures: Sequence[float]) -> Row:
        """Add a line without a bar."""
        self.rows.append(Row(what, unit, list(figures)))
        return self.rows[-1]

    def at_most(self, what: str, unit: str, figures: Sequence[float], bar: float) -> None:
        """Add a line whose median must not exceed ``bar``."""
        row = Row(what, unit, list(figures), f"<= {bar:g}", statistics.median(figures) <= bar)
        self.rows.append(row)

    def at_least(self, what: str, unit: str, figures: Sequence[float], bar: float) -> None:
        """Add a line whose median must reach ``bar``."""
        row = Row(what, unit, list(figures), f">= {bar:g}", statistics.median(figures) >= bar)
        self.rows.append(row)

    def save(self) -> Path:
        """Write the report beside the earlier ones and return its path.

        Raises:
            ValueError: a line has too few figures for a median; nothing was written.
        """
        for row in self.rows:
            if len(row.figures) < self.least_runs:
                raise ValueError(f"{row.what}: {len(row.figures)} figures, and {self.least_runs} are the least")
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        document = {
            "name": self.name,
            "subject": self.subject,
            "taken": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": _machine(),
            "facts": self.facts,
            "rows": [{**asdict(row), "median": row.median} for row in self.rows],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        return path

    def show(self, console: Console) -> None:
        """Print the report as a table."""
        table = Table("measured", "median", "least", "most", "runs", "bar", title=self.subject, title_justify="left")
        for row in self.rows:
            verdict = "" if row.holds is None else f"{row.bar}: {'holds' if row.holds else 'MISSED'}"
            median, least, most = (
                f"{value:,.3g} {row.unit}" if value < 1000 else f"{value:,.0f} {row.unit}"
                for value in (row.median, min(row.figures), max(row.figures))
            )
            table.add_row(row.what, median, least, most, str(len(row.figures)), verdict)
        console.print(table)


@contextmanager
def in_memory() -> Iterator[Path]:
    """Yield a folder whose files are in memory if the system has one, else any folder."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Cost:
    """The cost of a process: elapsed seconds, seconds of CPU with all its children, peak memory in MB."""

    wall: float
    cpu: float
    peak: float


def process(command: Sequence[str], *, env: Mapping[str, str] | None = None) -> tuple[Cost, str]:
    """Run a command to its end; return its cost and its output.

    Raises:
        RuntimeError: it failed; the message contains its output.
    """
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ) as child:
        printed, said = child.communicate()
    wall = time.perf_counter() - begin
    if child.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} … ended with {child.returncode}: {said[-2000:]}")
    return Cost(wall, float("nan"), float("nan")), printed


def forked(work: Callable[[], object]) -> Cost:
    """Run a function in a separate process, to measure only its own CPU time and memory.

    Raises:
        RuntimeError: it failed.
    """
    begin = time.perf_counter()
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"the measured work ended with {os.waitstatus_to_exitcode(status)}")
    return _cost(wall, used)


def spawned(command: Sequence[str], *, env: Mapping[str, str] | None = None) -> Cost:
    """Run a command in a separate process and return its cost, including children that it waited for.

    Raises:
        RuntimeError: it failed.
    """
    begin = time.perf_counter()
    child = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise RuntimeError(f"{' '.join(command[:4])} … ended with {child.returncode}")
    return _cost(time.perf_counter() - begin, used)


def with_target(folder: Path, work: Callable[[Path], Cost]) -> Cost:
    """Measure work that fills a folder, which is empty before and removed afterwards."""
    target = folder / "target"
    target.mkdir()
    try:
        return work(target)
    finally:
        shutil.rmtree(target)


def _cost(wall: float, used: resource.struct_rusage) -> Cost:
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _machine() -> dict[str, Any]:
    models = (
        [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        if Path("/proc/cpuinfo").exists()
        else []
    )
    return {
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.machine(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }
