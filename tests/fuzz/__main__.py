"""Fuzzes for a time: ``python -m tests.fuzz --seconds 600 --seed 1``.  Prints cases and failures; 1 if any failed."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.fuzz.attempt import attempt
from tests.fuzz.cases import make_case

MEASURED_EVERY = 5
"""Of how many cases one is read with its memory measured; no divisor of the files or ways of damaging."""


def main() -> int:
    """Run cases until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the number of the first case")
    options = parser.parse_args()
    outcomes: Counter[tuple[str, str]] = Counter()
    number, failures, slowest = options.start, 0, (0.0, -1)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        started = time.monotonic()
        try:
            measured = number % MEASURED_EVERY == 0
            outcomes.update(attempt(make_case(options.seed, number), measured=measured).items())
        except Exception:  # noqa: BLE001 - finding them is what this is for
            failures += 1
            print(f"case {number} of seed {options.seed} failed:\n{traceback.format_exc()}", flush=True)
        slowest = max(slowest, (time.monotonic() - started, number))
        number += 1
    for (way, outcome), count in sorted(outcomes.items()):
        print(f"{way}: {outcome}: {count}")
    print(f"slowest case: number {slowest[1]}, {slowest[0]:.2f} s")
    print(f"{number - options.start} cases of seed {options.seed} in {options.seconds:.0f} s, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
