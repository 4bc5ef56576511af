#!/usr/bin/env python3
"""Run the suite as some processes side by side: one for what needs other services, the others for tests of Spark.

usage: tools/test_parts.py [--parts N] [--record] COMMAND...      (what runs pytest)

Tests of Spark wait more than they compute, so two cores serve three processes. Their files are dealt out so that each
part takes as long as the others, by what they took before. Each part has its own session, services and folders. The
first part writes to the terminal, the others when they have ended. ``--record`` keeps what each file took in
tests/durations.json; a file that is not there counts as much as the middle one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DURATIONS = ROOT / "tests" / "durations.json"
DEALT = ("attacks", "spark")
"""Folders of tests whose files are dealt out; those of all others are one part."""
VARIABLE = "SPARKCRYPT_TEST_DURATIONS"
"""Names the file into which a pytest session writes what each of its files took (tests/conftest.py)."""


def deal_files(files: list[str], seconds: dict[str, float], parts: int) -> list[list[str]]:
    """Deal files out to parts, the longest first, each to the part that has least; a part's files are in order."""
    middle = statistics.median(seconds.values()) if seconds else 1.0
    dealt: list[list[str]] = [[] for _ in range(parts)]
    loads = [0.0] * parts
    for file in sorted(files, key=lambda name: (-seconds.get(name, middle), name)):
        least = loads.index(min(loads))
        dealt[least].append(file)
        loads[least] += seconds.get(file, middle)
    return [sorted(part) for part in dealt]


def run_parts(command: list[str], dealt: list[list[str]], folder: Path) -> tuple[list[int], dict[str, float]]:
    """Run every part to its end; return their exit codes and what each file took, in seconds."""
    running = []
    for number, files in enumerate(dealt):
        output = None if number == 0 else (folder / f"{number}.log").open("w")
        environment = {**os.environ, VARIABLE: str(folder / f"{number}.json")}
        running.append(subprocess.Popen([*command, *files], stdout=output, stderr=output, env=environment))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        for number, process in enumerate(running):
            process.wait()
            print(f"part {number + 1} ended after {time.monotonic() - began:.0f} s", file=sys.stderr)
    finally:
        for process in running:
            process.terminate()
    for number in range(1, len(running)):
        print((folder / f"{number}.log").read_text(errors="replace"), flush=True)
    found: dict[str, float] = {}
    for written in folder.glob("*.json"):
        found.update(json.loads(written.read_text()))
    return [process.returncode for process in running], found


def main() -> int:
    """Run the suite; return 0 when every part passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep what each file took")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    folders = [ROOT / "tests" / name for name in DEALT]
    files = sorted(str(file.relative_to(ROOT)) for folder in folders for file in folder.rglob("test_*.py"))
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    # Not its files by name: pytest would collect those, too, that a conftest.py leaves out.
    others = ["tests", *(f"--ignore=tests/{name}" for name in DEALT)]
    dealt = [others, *deal_files(files, seconds, chosen.parts - 1)]
    with tempfile.TemporaryDirectory() as folder:
        codes, found = run_parts(chosen.command, dealt, Path(folder))
    if chosen.record:
        DURATIONS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    if any(codes):
        print(f"the parts of the suite ended with {', '.join(map(str, codes))}", file=sys.stderr)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
