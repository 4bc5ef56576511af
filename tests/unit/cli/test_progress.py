from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.text import Text

from sparkcrypt.cli.frame.progress import BarProgress, LineProgress, progress_on_stderr
from sparkcrypt.log_lines import log_place


def shown(text: io.StringIO) -> str:
    """Return what a console wrote, without colours and with single spaces."""
    return " ".join(Text.from_ansi(text.getvalue()).plain.split())


def kept(lines: list[str]) -> Callable[[str], None]:
    """Return what keeps lines of the log, each after the table and the unit that it is about."""
    return lambda message: lines.append(f"{' '.join(log_place().values())}: {message}")


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def test_lines_tell_units_files_bytes_rate_and_time_left() -> None:
    """A line holds all of them, and the units."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(kept(lines), clock)
    progress.start("db.t", 2, 10, 4_000_000)
    progress.step("p=0", "staging")
    clock.now += 10
    progress.advance(5, 1_000_000, 1)
    assert lines == [
        "db.t: 10 files, 4.0 MB in 2 units to rewrite",
        "db.t p=0: staging",
        "db.t: 1 of 2 units, 5 of 10 files, 1.0 MB of 4.0 MB, 100.0 kB/s, 30 s left",
    ]


def test_work_without_units_tells_none() -> None:
    """Files that are indexed are of no unit: lines and bars tell of files, and what is done to them."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(kept(lines), clock, work="index")
    progress.start("db.t", 0, 10, 4_000_000)
    clock.now += 10
    progress.advance(5, 1_000_000)
    assert lines == [
        "db.t: 10 files, 4.0 MB to index",
        "db.t: 5 of 10 files, 1.0 MB of 4.0 MB, 100.0 kB/s, 30 s left",
    ]
    text = io.StringIO()
    bars = BarProgress(Console(file=text, force_terminal=True, width=160))
    bars.start("db.t", 0, 2, 2_000_000)
    bars.advance(1, 1_000_000)
    bars.finish()
    assert "1/2 files 1.0 MB of 2.0 MB" in shown(text)
    assert "units" not in shown(text)


def test_lines_are_few() -> None:
    """Of a thousand quick units the first ones and the end are told, not each."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(kept(lines), clock)
    progress.start("db.t", 1000, 1000, 1000)
    for _ in range(1000):
        clock.now += 0.02
        progress.advance(1, 1, 1)
    assert len(lines) <= 6
    assert lines[-1].startswith("db.t: 1,000 of 1,000 units, 1,000 of 1,000 files")


def test_empty_files_are_no_division_by_zero() -> None:
    """A run over empty files, in no time at all, is told as well."""
    lines: list[str] = []
    progress = LineProgress(kept(lines), Clock())
    progress.start("db.t", 1, 1, 0)
    progress.advance(1, 0, 1)
    assert lines[-1] == "db.t: 1 of 1 unit, 1 of 1 file, 0 B of 0 B, 0 B/s, 0 s left"


def test_each_table_is_counted_from_its_own_start() -> None:
    """A pass has many tables: what was done of the first is no part of the second one's line, rate or quiet time."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(kept(lines), clock)
    progress.start("db.a", 1, 7, 7_000)
    clock.now += 100
    progress.advance(7, 7_000, 1)
    progress.finish()
    progress.start("db.b", 2, 5, 5_000)
    clock.now += 2
    progress.advance(1, 1_000)
    assert lines[-1] == "db.b: 5 files, 5.0 kB in 2 units to rewrite"
    clock.now += 8
    progress.advance(3, 1_000, 1)
    assert lines[-1] == "db.b: 1 of 2 units, 4 of 5 files, 2.0 kB of 5.0 kB, 200 B/s, 15 s left"


def test_runs_at_once_are_counted_apart() -> None:
    """Each line of one of several runs is about its target, and counts it alone; each has a bar of its own."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(kept(lines), clock)
    a, b = progress.of_run("db.a"), progress.of_run("db.b")
    a.start("db.a", 2, 2, 2_000)
    b.start("db.b", 0, 0, 0)
    a.step("p=1", "staging")
    b.step("db.b", "staging")
    clock.now += 10
    a.advance(1, 1_000, 1)
    assert lines == [
        "db.a: 2 files, 2.0 kB in 2 units to rewrite",
        "db.b: nothing to do",
        "db.a p=1: staging",
        "db.b: staging",
        "db.a: 1 of 2 units, 1 of 2 files, 1.0 kB of 2.0 kB, 100 B/s, 10 s left",
    ]
    text = io.StringIO()
    bars = BarProgress(Console(file=text, force_terminal=True, width=160))
    first, second = bars.of_run("db.a"), bars.of_run("db.b")
    first.start("db.a", 1, 7, 7_000)
    second.start("db.b", 1, 5, 5_000)
    first.advance(7, 7_000, 1)
    first.finish()
    second.step("p=1", "swapping")
    second.advance(4, 4_000)
    second.finish()
    assert "db.a" in shown(text)
    assert re.search(r"db.b: p=1: swapping.* 4/5 files", shown(text))


def test_unit_that_grew_leaves_no_negative_time() -> None:
    """A unit is listed anew at its turn, so that more bytes may be rewritten than were announced."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(kept(lines), clock)
    progress.start("db.t", 1, 1, 1_000)
    clock.now += 10
    progress.advance(2, 2_000, 1)
    assert lines[-1].endswith("200 B/s, 0 s left")


def test_nothing_to_do_is_said() -> None:
    """A run without work says so in one line."""
    lines: list[str] = []
    LineProgress(kept(lines)).start("db.t", 0, 0, 0)
    assert lines == ["db.t: nothing to do"]


def test_the_bar_lives_on_its_console_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar writes to the console that it was given; names in brackets are no markup; standard output stays clean."""
    text = io.StringIO()
    progress = BarProgress(Console(file=text, force_terminal=True, width=160))
    progress.start("db.t", 1, 2, 2_000_000)
    progress.step("p=[/b]", "staging")
    progress.advance(1, 1_000_000)
    progress.finish()
    assert "p=[/b]: staging" in text.getvalue()
    assert "0/1 units 1/2 files 1.0 MB of 2.0 MB" in shown(text)
    assert capsys.readouterr() == ("", "")


def test_a_bar_without_work_shows_nothing() -> None:
    """Nothing to do: no bar, and its end is no error."""
    text = io.StringIO()
    progress = BarProgress(Console(file=text, force_terminal=True))
    progress.start("db.t", 0, 0, 0)
    progress.finish()
    assert "files" not in text.getvalue()


def test_bar_of_each_table_begins_anew() -> None:
    """The second table's bar counts its own units and files, alone on the terminal."""
    text = io.StringIO()
    progress = BarProgress(Console(file=text, force_terminal=True, width=160))
    progress.start("db.a", 1, 7, 7_000)
    progress.advance(7, 7_000, 1)
    progress.finish()
    text.seek(0)
    text.truncate()
    progress.start("db.b", 2, 5, 5_000)
    progress.advance(2, 1_000, 1)
    progress.finish()
    assert "db.b" in shown(text) and "db.a" not in shown(text)
    assert "1/2 units 2/5 files 1.0 kB of 5.0 kB" in shown(text)


@pytest.mark.parametrize("before", ["nothing", "no work", "a table"])
def test_steps_without_a_bar_are_lines(before: str) -> None:
    """A rollback, and files that are carried over, have no bar: their steps are said all the same."""
    text = io.StringIO()
    progress = BarProgress(Console(file=text, force_terminal=True, width=40))
    if before != "nothing":
        progress.start("db.t", 0, *((0, 0) if before == "no work" else (3, 300)))
        progress.finish()
    text.seek(0)
    text.truncate()
    progress.step("day=[b]2026-01-31/country=[/b]", "rolling back")
    progress.advance(1, 100, 1)
    progress.finish()
    assert "day=[b]2026-01-31/country=[/b]: rolling back\n" in Text.from_ansi(text.getvalue()).plain + "\n"
    assert "files" not in shown(text)


def test_a_log_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is no terminal no bar is drawn."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(progress_on_stderr(), LineProgress)
