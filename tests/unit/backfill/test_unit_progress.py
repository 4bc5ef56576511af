"""What is told of a unit while its files are rewritten."""

from __future__ import annotations

from sparkcrypt.runs.table.open_table import UnitProgress
from tests.unit.backfill.heard_progress import Heard, summed


def test_rewritten_files_are_told_and_a_unit_that_is_not_done_is_not_told_as_done() -> None:
    """Its rewrite is nine tenths of it; the end is told once, whatever was told before."""
    heard = Heard()
    progress = UnitProgress(heard, 10, 1000)
    for files, told in ((0, (0, 0, 0)), (5, (4, 450, 0)), (5, (4, 450, 0)), (10, (9, 900, 0)), (12, (9, 900, 0))):
        progress.tell_rewritten(files)
        assert summed(heard) == told
    assert len(heard.told) == 2
    progress.tell_done()
    assert summed(heard) == (10, 1000, 1)


def test_unit_that_failed_is_taken_back() -> None:
    """It will be done another time."""
    heard = Heard()
    progress = UnitProgress(heard, 10, 1000)
    progress.tell_rewritten(7)
    progress.tell_unchanged()
    assert summed(heard) == (0, 0, 0)


def test_unit_without_files_is_told_as_done() -> None:
    """No division by zero, and no file to tell."""
    heard = Heard()
    progress = UnitProgress(heard, 0, 0)
    progress.tell_rewritten(0)
    progress.tell_done()
    assert heard.told == [(0, 0, 1)]
