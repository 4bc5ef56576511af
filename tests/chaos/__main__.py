"""Plays rounds of chaos for a while and says what came of them: ``python -m tests.chaos --seconds 600 --seed 1``."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from tests.chaos.draw import FAULTS
from tests.chaos.faults import available
from tests.chaos.round import Result, play
from tests.chaos.world import World

_MOST_BROKEN = 5


@click.command()
@click.option("--seconds", type=float, default=600.0, show_default=True, help="Begin no round after this.")
@click.option("--rounds", type=int, default=10**9, help="Play no more than this.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first round; the next has the next.")
@click.option("--seeds", help="Play these instead, separated by commas.")
@click.option("--worlds", type=click.IntRange(1), default=1, show_default=True, help="So many rounds at a time.")
@click.option("--fault", "only", type=click.Choice(list(FAULTS)), multiple=True, help="Let no others come.")
@click.option("--keep", type=click.Path(path_type=Path), help="Copy the folders of wrong rounds there.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def main(seed: int, rounds: int, seeds: str | None, worlds: int, as_json: bool, **options: Any) -> None:
    """Play rounds; exits with 1 where one was wrong, and with its seed it can be played again."""
    began = time.monotonic()
    chosen = [int(part) for part in seeds.split(",")] if seeds else range(seed, seed + rounds)
    players = Players(iter(chosen), **options)
    with ThreadPoolExecutor(worlds) as pool:
        for player in [pool.submit(players.play) for _ in range(worlds)]:
            player.result()
    said = summary(players.results, players.broken, time.monotonic() - began)
    print(json.dumps(said, indent=2) if as_json else _text(said))
    sys.exit(bool(said["wrong"]))


class Players:
    """Plays rounds, each player in a world of its own.

    Args:
        seeds: of the rounds, shared by the players.
        seconds: no round begins after them.
        only: faults that may come; all when empty.
        keep: gets the folders of wrong rounds.
    """

    def __init__(self, seeds: Iterator[int], seconds: float, only: Sequence[str], keep: Path | None) -> None:
        self._seeds, self._end, self._only, self._keep = seeds, time.monotonic() + seconds, only, keep
        self._mutex = threading.Lock()
        self.results: list[Result] = []
        self.broken: list[dict[str, Any]] = []

    def play(self) -> None:
        """Play until the seeds or the time are spent; after a round that could not be played, in a new world."""
        world: World | None = None
        try:
            while (seed := self._next()) is not None:
                try:
                    world = world or World(Path(tempfile.mkdtemp(prefix="chaos-")))
                    faults = [
                        fault for fault in available(world) if fault == "none" or not self._only or fault in self._only
                    ]
                    self.results.append(play(world, seed, faults, self._keep))
                    _tell(self.results[-1])
                except Exception as error:  # noqa: BLE001  # a round that could not be played is told, and the next is
                    traceback.print_exc()
                    self.broken.append({"seed": seed, "error": f"{type(error).__name__}: {str(error)[:500]}"})
                    if world is not None:
                        world.close()
                    world = None
        finally:
            if world is not None:
                world.close()

    def _next(self) -> int | None:
        with self._mutex:
            if time.monotonic() > self._end or len(self.broken) > _MOST_BROKEN:
                return None
            return next(self._seeds, None)


def summary(results: Sequence[Result], broken: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return the figures of rounds.

    Args:
        results: of the rounds that were played to their end.
        broken: those that could not be.
        seconds: all took.
    """
    uses = sum((Counter(result.uses) for result in results), Counter[str]())
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "rounds": len(results),
        "tables": dict(Counter(result.kind for result in results)),
        "faults": dict(Counter(result.fault for result in results if result.fault != "none")),
        "operations": {name: uses[name] for name in sorted(uses) if not name.startswith(("judge", "fault", "the "))},
        "reported": [result.to_dict() for result in results if result.reported and not result.wrong],
        "wrong": [result.to_dict() for result in results if result.wrong],
        "not played": list(broken),
    }


def _tell(result: Result) -> None:
    kinds = sorted({finding.kind for finding in result.wrong})
    said = f"WRONG: {', '.join(kinds)}" if kinds else ("reported" if result.reported else "ok")
    print(
        f"seed {result.seed}: {result.kind}, {result.fault}: {said}, {result.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )


def _text(said: dict[str, Any]) -> str:
    operations = ", ".join(f"{count} {name}" for name, count in said["operations"].items())
    faults = ", ".join(f"{count} {name}" for name, count in said["faults"].items())
    lines = [
        f"{said['rounds']} rounds in {said['seconds']} s; {len(said['wrong'])} wrong, {len(said['reported'])} in which "
        "the tool itself reported rows in question",
        f"operations: {operations}",
        f"faults: {faults or 'none'}",
        *(f"wrong, seed {result['seed']}: {json.dumps(result['wrong'])[:600]}" for result in said["wrong"]),
        *(f"not played, seed {broken['seed']}: {broken['error']}" for broken in said["not played"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
