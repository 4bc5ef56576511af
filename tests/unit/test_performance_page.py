from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench import harness
from bench.__main__ import BENCHMARKS
from bench.harness import RESULTS, RUNS, Report
from bench.pages import PAGE, rendered, shown

LONG = {"cluster", "estate", "many_writers", "petabyte", "rotation", "units"}
"""Benchmarks of which one run takes minutes: a bar says whether it holds for that one."""


def test_the_page_says_what_was_measured() -> None:
    """Every table of the page is that of the recorded results; `python -m bench.pages` writes them."""
    page = PAGE.read_text()
    assert rendered(page) == page


def test_every_benchmark_has_results_and_is_on_the_page() -> None:
    """No benchmark is without a record, and none is left out of the page."""
    assert shown(PAGE.read_text()) == set(BENCHMARKS) == {file.stem for file in RESULTS.glob("*.json")}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_results_are_medians_of_enough_runs(name: str) -> None:
    """Each figure comes of five runs or more, if one is not long, and a bar says whether it holds for their median."""
    for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]:
        assert len(row["figures"]) >= (1 if name in LONG else RUNS)
        if row["bar"]:
            sign, bound = row["bar"].split()
            assert row["holds"] is (row["median"] <= float(bound) if sign == "<=" else row["median"] >= float(bound))


def test_a_report_with_too_few_figures_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would fail this suite is refused when it is measured."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    report = Report("short", "too few runs")
    report.add("one figure", "ms", [1.0])
    with pytest.raises(ValueError, match="one figure: 1 figures, and 5 are the least"):
        report.save()
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_figure_that_was_changed_by_hand_is_found() -> None:
    """A table that is not the results' is written anew."""
    page = PAGE.read_text()
    altered = re.sub(r"\| (\d)", r"| 9\1", page, count=1)
    assert altered != page and rendered(altered) == page
