"""Plays nights and says what came of them: ``python -m tests.everyday --seed 1 --nights 30``."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tests.conftest import start_session
from tests.everyday.night import Plan, Result, play
from tests.everyday.plants import PLANTS
from tests.everyday.seam import POINTS
from tests.everyday.verbs import VERBS
from tests.services.installed import ROOT, spark_environment
from tests.services.quick_java import quick_java
from tests.spark.fixtures import new_lake


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first night; the next has the next.")
@click.option("--nights", type=click.IntRange(1), default=10, show_default=True, help="How many.")
@click.option("--tables", type=click.IntRange(2), default=12, show_default=True, help="In the estate.")
@click.option("--turns", type=click.IntRange(1), default=2, show_default=True, help="Before the second night.")
@click.option("--verb", "verbs", type=click.Choice(list(VERBS)), multiple=True, help="Draw no others.")
@click.option("--each", is_flag=True, help="Play as many nights for each verb, and draw no other in them.")
@click.option("--point", "points", type=click.Choice(POINTS), multiple=True, help="Kill drivers nowhere else.")
@click.option("--rotate/--no-rotate", "rotates", default=True, help="Rotate a key at the end of each night.")
@click.option("--plant", type=click.Choice(list(PLANTS)), help="Plant a fault, which nights must find.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--verbose", is_flag=True, help="Print what happens as it happens.")
def main(
    seed: int, nights: int, verbs: Sequence[str], each: bool, plant: str | None, as_json: bool, **plan: Any
) -> None:
    """Play nights; exits with 1 where one was wrong, and with its seed and these options it can be played again."""
    folder = Path(tempfile.mkdtemp(prefix="nights-"))
    os.environ.update(quick_java(spark_environment()))
    os.environ["SPARKCRYPT_JAR"] = str(shutil.copy(ROOT / "sparkcrypt" / "_jar" / "sparkcrypt.jar", folder))
    spark = start_session(folder / "spark")
    spark.sparkContext.setLogLevel("OFF")  # what is refused is in the report
    tell = _tell if plan.pop("verbose") else None
    verbs, plan["points"] = verbs or tuple(VERBS), plan["points"] or POINTS
    results: list[Result] = []
    try:
        for drawn, number in itertools.product([(verb,) for verb in verbs] if each else [verbs], range(nights)):
            chosen = Plan(seed + number, verbs=drawn, **plan)
            place = folder / f"night-{len(results)}"
            with PLANTS[plant or "none"](), new_lake(spark, place / "estate") as lake:
                results.append(play(lake, place / "outside", chosen, tell))
            _tell(f"{drawn[0]}, {_line(results[-1])}" if each else _line(results[-1]))
            shutil.rmtree(place)
    except KeyboardInterrupt:
        _tell(f"interrupted after {len(results)} nights")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    said = report(results, verbs, plan["points"])
    print(json.dumps(said, indent=2) if as_json else _text(said))
    sys.exit(bool(said["wrong"]))


def report(results: Sequence[Result], verbs: Sequence[str], points: Sequence[str]) -> dict[str, Any]:
    """Return the figures of nights: what was done, what was wrong, and after which verb drivers were killed where."""
    done = sum((result.done for result in results), Counter[tuple[str, str]]())
    reached = sum((result.reached for result in results), Counter[tuple[str, str]]())
    return {
        "nights": len(results),
        "seconds": round(sum(result.seconds for result in results)),
        "verbs": {verb: {how: done[verb, how] for how in ("done", "refused")} for verb in verbs},
        "kills": {verb: {point: reached[verb, point] for point in points} for verb in verbs},
        "never": [f"{verb} x {point}" for verb in verbs for point in points if not reached[verb, point]],
        "wrong": [
            {
                "seed": result.seed,
                "what": [f"{finding.kind}: {finding.what}" for finding, _ in result.wrong],
                "after": result.wrong[0][1],
                "log": result.log,
            }
            for result in results
            if result.wrong
        ],
    }


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _line(result: Result) -> str:
    kinds = sorted({finding.kind for finding, _ in result.wrong})
    what = f"WRONG: {', '.join(kinds)}, after {result.wrong[0][1].strip()}" if kinds else "ok"
    return f"seed {result.seed}: {what}; {result.seconds:.0f} s"


def _text(said: dict[str, Any]) -> str:
    points = list(next(iter(said["kills"].values())))
    rows = [["verb", "done", "refused", *points]]
    for verb, kills in said["kills"].items():
        rows.append([verb, *map(str, said["verbs"][verb].values()), *(str(kills[point]) for point in points)])
    wide = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows]
    return "\n".join(
        [
            f"{said['nights']} nights in {said['seconds']} s, {len(said['wrong'])} wrong; drivers killed, by what was "
            "done before:",
            *lines,
            f"never: {', '.join(said['never']) or 'none'}",
            *(f"seed {wrong['seed']}, after {wrong['after']}: {'; '.join(wrong['what'])}" for wrong in said["wrong"]),
        ]
    )


if __name__ == "__main__":
    main()
