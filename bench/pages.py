"""The command that writes the recorded results into docs/performance.md: ``python -m bench.pages``.

The page's text is written by hand; each table is between two comments that name its benchmark.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.harness import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
_TABLE = re.compile(r"(<!-- results of (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def rendered(page: str) -> str:
    """Return the page with every table rendered from the results.

    Raises:
        FileNotFoundError: a benchmark that the page names has no results.
    """
    return _TABLE.sub(lambda found: f"{found[1]}{_results(found[2])}{found[3]}", page)


def shown(page: str) -> set[str]:
    """Return the benchmarks that the page shows."""
    return {found[2] for found in _TABLE.finditer(page)}


def figure(value: float, unit: str) -> str:
    """Return a figure with its unit, in three significant digits or all digits before the point."""
    return f"{value:,.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"


def _results(name: str) -> str:
    report = json.loads((RESULTS / f"{name}.json").read_text())
    machine = report["machine"]
    lines = [
        f"Taken {report['taken'][:10]} on {machine['cores']} cores ({machine['processor']}), Python "
        f"{machine['python']}, load {machine['load']} at the end; {_runs(report)}.",
        "",
        "| measured | median | least | most | bar |",
        "|---|---|---|---|---|",
        *map(_row, report["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _runs(report: dict[str, Any]) -> str:
    runs = min(len(row["figures"]) for row in report["rows"])
    return "one run" if runs == 1 else f"medians of {runs} runs or more"


def _row(row: dict[str, Any]) -> str:
    bar = row["bar"] and f"{row['bar']}: {'holds' if row['holds'] else 'missed'}"
    least, most = (figure(bound(row["figures"]), "").strip() for bound in (min, max))
    return f"| {row['what']} | {figure(row['median'], row['unit'])} | {least} | {most} | {bar} |"


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(rendered(PAGE.read_text()))


if __name__ == "__main__":
    main()
