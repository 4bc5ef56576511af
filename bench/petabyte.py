"""What a table of a petabyte, in millions of files, costs the driver: memory, CPU, and its records.

The table is synthesised (`bench.synthesised`): no file is written, and footers that the driver opens are not parsed.
A run encrypts all of it, and a second one finds nothing to do; each amount is measured in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import Report, process
from bench.synthesised import Store, policy_in, run_over, take_their_place
from sparkcrypt.runs.table.progress import Progress

FILES = 80
HALF, EIGHTH, WHOLE = 6_250, 12_500, 100_000
"""Numbers of partitions of 80 files: two that show how costs grow, and a petabyte of files of 125 MB."""


def run() -> Report:
    """Run over an eighth of a petabyte and half of that, and over a hundred thousand partitions of one file."""
    half, eighth = (_child(partitions, FILES) for partitions in (HALF, EIGHTH))
    many = _child(WHOLE, 1)
    report = Report(
        "petabyte",
        f"a table of which {EIGHTH * FILES:,} files are synthesised, or {WHOLE:,} partitions of one file, on one core",
        least_runs=1,
    )
    millions = (EIGHTH - HALF) * FILES / 1e6
    for phase, before in (("survey", "start"), ("rewrite", "survey"), ("nothing to do", "done")):
        seconds = [found[phase]["cpu"] - found[before]["cpu"] for found in (eighth, half)]
        report.add(f"{phase}: a further million files, CPU", "s", [(seconds[0] - seconds[1]) / millions])
        report.add(f"{phase}: CPU by that of half the files", "x", [seconds[0] / seconds[1]])
    for phase in ("survey", "done", "nothing to do"):
        grown = eighth[phase]["peak"] - half[phase]["peak"]
        report.add(f"{phase}: memory of a further million files", "MB", [grown / millions])
    objects, size = (eighth[what]["state"] - half[what]["state"] for what in ("objects", "bytes"))
    report.add("records of a further million files", "MB", [size / 1e6 / millions])
    report.add("records of a further partition", "objects", [objects / (EIGHTH - HALF)])
    what = f"{WHOLE:,} partitions of one file"
    report.at_most(f"{what}, CPU of the driver", "s", [many["done"]["cpu"] - many["start"]["cpu"]], 3600)
    report.add(f"{what}, memory", "MB", [many["done"]["peak"]])
    report.add(f"{what}, nothing to do, CPU", "s", [many["nothing to do"]["cpu"] - many["done"]["cpu"]])
    report.facts = {"half": half, "eighth": eighth, "partitions": many}
    return report


def _child(partitions: int, files: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.petabyte", str(partitions), str(files), folder]
        found: dict[str, Any] = json.loads(process(command)[1].splitlines()[-1])
        return found


@dataclass
class Phases(Progress):
    """CPU seconds and peak memory in MB of this process at the end of each phase of a run."""

    ends: dict[str, dict[str, float]] = field(default_factory=dict)

    def end(self, phase: str) -> None:
        """Note the end of a phase."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.ends[phase] = {"cpu": round(time.process_time(), 2), "peak": round(peak, 1)}

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Note that all units are surveyed."""
        self.end("survey")

    def finish(self) -> None:
        """Note that all units are swapped."""
        self.end("rewrite")


def main(partitions: int, files: int, folder: Path) -> None:
    """Run over a table twice and print what it cost as JSON."""
    vars(os)["fsync"] = lambda _: None  # what a disk does is no matter here
    store, phases = Store(partitions, files), Phases()
    take_their_place(store)
    policy = policy_in(str(folder))
    phases.end("start")
    for outcome in ("done", "nothing to do"):
        report = run_over(store, policy, phases)
        if report.outcome != outcome or report.files_total != partitions * files:
            raise SystemExit(f"the run ended otherwise: {report.to_text()[-2000:]}")
        phases.end(outcome)
    records = [file.stat().st_size for file in (folder / "state" / "log").rglob("*.json")]
    sums = {"objects": {"state": len(records)}, "bytes": {"state": sum(records)}}
    print(json.dumps({**phases.ends, **sums}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
