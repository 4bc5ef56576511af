from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparkcrypt.cli.progress import BarProgress, LineProgress, progress_on_stderr


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def test_lines_tell_files_bytes_rate_and_time_left() -> None:
    """A line holds all four."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(lines.append, clock)
    progress.start("db.t", 2, 10, 4_000_000)
    progress.step("p=0", "staging")
    clock.now += 10
    progress.advance(5, 1_000_000)
    assert lines == [
        "db.t: 10 files, 4.0 MB in 2 units to rewrite",
        "p=0: staging",
        "5 of 10 files, 1.0 MB of 4.0 MB, 100.0 kB/s, 30 s left",
    ]


def test_lines_are_few() -> None:
    """Of a thousand quick units the first ones and the end are told, not each."""
    lines: list[str] = []
    clock = Clock()
    progress = LineProgress(lines.append, clock)
    progress.start("db.t", 1000, 1000, 1000)
    for _ in range(1000):
        clock.now += 0.02
        progress.advance(1, 1)
    assert len(lines) <= 6
    assert lines[-1].startswith("1000 of 1,000 files")


def test_empty_files_are_no_division_by_zero() -> None:
    """A run over empty files, in no time at all, is told as well."""
    lines: list[str] = []
    progress = LineProgress(lines.append, Clock())
    progress.start("db.t", 1, 1, 0)
    progress.advance(1, 0)
    assert lines[-1] == "1 of 1 file, 0 B of 0 B, 0 B/s, 0 s left"


def test_nothing_to_do_is_said() -> None:
    """A run without work says so in one line."""
    lines: list[str] = []
    LineProgress(lines.append).start("db.t", 0, 0, 0)
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
    assert "1/2 files" in text.getvalue()
    assert "1.0 MB of 2.0 MB" in text.getvalue()
    assert capsys.readouterr() == ("", "")


def test_a_bar_without_work_shows_nothing() -> None:
    """Nothing to do: no bar, and its end is no error."""
    text = io.StringIO()
    progress = BarProgress(Console(file=text, force_terminal=True))
    progress.start("db.t", 0, 0, 0)
    progress.finish()
    assert "files" not in text.getvalue()


def test_a_log_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is no terminal no bar is drawn."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(progress_on_stderr(), LineProgress)
