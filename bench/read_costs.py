"""The cost of reads: planning with the extension's rules, calls to the key service, and the reads themselves."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from bench.harness import Report, in_memory, process
from bench.read_costs_child import CALL_ROUNDS, COLUMNS, JOINS, PLAN_WARM_UP, READ_WARM_UP, SMALL_FILES
from sparkcrypt.keys.opened import KEY_LOG

MOST_MILLISECONDS, MOST_PERCENT = 50, 5


def run() -> Report:
    """Measure in three Spark processes, one after the other."""
    report = Report("read_costs", f"a query over {COLUMNS:,} columns and {JOINS} joins; {SMALL_FILES:,} small files")
    _add_planning(report)
    _add_calls(report)
    _add_reads(report)
    report.facts = {
        "warm-up rounds": {"planning": PLAN_WARM_UP, "reads": READ_WARM_UP},
        "calls": f"readers with caches of their own, {CALL_ROUNDS} of each kind, Vault",
        "planning": "CPU of the planning thread, unless the row says wall",
    }
    return report


def _add_planning(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what, rounds in _measured("planning", folder):
            bare, bare_wall, ruled, ruled_wall = ([line[place] for line in rounds] for place in range(4))
            report.add(f"planning, {what}: without the rules", "ms", bare)
            added = [after - before for before, after in zip(bare, ruled, strict=True)]
            percent = [(after / before - 1) * 100 for before, after in zip(bare, ruled, strict=True)]
            if what == "masks":
                report.add(f"planning, {what}: added", "ms", added)
            else:
                report.at_most(f"planning, {what}: added", "ms", added, MOST_MILLISECONDS)
                report.at_most(f"planning, {what}: added, by the time without", "%", percent, MOST_PERCENT)
            wall = [after - before for before, after in zip(bare_wall, ruled_wall, strict=True)]
            report.add(f"planning, {what}: added on the clock", "ms", wall)


def _add_calls(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what, rounds in _measured("calls", folder, log=Path(folder, "calls.log")):
            report.at_most(f"{SMALL_FILES:,} files, {what}", "calls", [line[0] for line in rounds], 1)


def _add_reads(report: Report) -> None:
    with in_memory() as folder:
        for what, rounds in _measured("reads", str(folder)):
            clear, encrypted, logged, masked = ([line[place] for line in rounds[READ_WARM_UP:]] for place in range(4))
            report.add(f"SELECT * of {what}: in clear, CPU of the JVM", "s", clear)
            report.add(f"SELECT * of {what}: encrypted", "s", encrypted)
            report.add(f"SELECT * of {what}: added by encryption", "%", _percent(clear, encrypted))
            report.add(f"SELECT * of {what}: added by access events", "%", _percent(encrypted, logged))
            ratios = [after / before for before, after in zip(encrypted, masked, strict=True)]
            report.at_most(f"SELECT * of {what}: with one column of ten masked, by without", "x", ratios, 1)


def _percent(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [(second / first - 1) * 100 for first, second in zip(before, after, strict=True)]


def _measured(what: str, folder: str, *, log: Path | None = None) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield a process's measurements with the figures of each round; it prints ``figures|what|figure figure …``."""
    environment = {KEY_LOG: str(log)} if log else {}
    _, printed = process([sys.executable, "-m", "bench.read_costs_child", what, folder], env=environment)
    lines = [line.split("|") for line in printed.splitlines() if line.startswith("figures|")]
    for name, found in groupby(sorted(lines, key=lambda line: line[1]), key=lambda line: line[1]):
        yield name, [[float(figure) for figure in line[2].split()] for line in found]
