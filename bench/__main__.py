"""The command that runs the named benchmarks, or all, and records their results."""

from __future__ import annotations

import importlib

import click
from rich.console import Console

BENCHMARKS = (
    *(
        "bridge",
        "footer_scan",
        "rewrap",
        "rewrite",
        "small_pages",
        "wide_files",
        "memory",
        "online",
        "scale",
        "cluster",
    ),
    *("state_growth", "access_events", "read_costs", "skipping", "rotation", "many_writers", "orc", "units", "start"),
    *("estate", "petabyte"),
)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(BENCHMARKS))
def main(names: tuple[str, ...]) -> None:
    """Run benchmarks; their tables go to stdout, their figures to bench/results/.

    Example: make bench ARGS="bridge"
    """
    console = Console(width=140)
    missed = False
    for name in names or BENCHMARKS:
        report = importlib.import_module(f"bench.{name}").run()
        report.show(console)
        console.print(f"recorded in {report.save()}", style="dim")
        missed |= any(row.holds is False for row in report.rows)
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
