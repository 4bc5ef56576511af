"""The interface for the progress of a run, which the command line shows and a library call ignores by default."""

from __future__ import annotations

import threading

STAGING = 0.9
"""The share of the rewrite in a unit's work, so that progress is not complete before files are verified and swapped."""


class Progress:
    """A receiver of the progress of runs, one after the other; this one ignores all of it."""

    def of_run(self, target: str) -> Progress:
        """Return a receiver for the run over a target, which may be under way together with others."""
        return self

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Receive the amount of work of a run; progress is counted from here."""

    def step(self, unit: str, step: str) -> None:
        """Receive a unit's step (staging, verifying, swapping), possibly before `start` or after `finish`."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Receive the numbers of further finished files, bytes and units; negative numbers take them back."""

    def finish(self) -> None:
        """Receive the end of the run, whether or not it succeeded."""


class UnitProgress:
    """Reports the progress of one unit, which in the end is all of its files and bytes, or none.

    Args:
        progress: receives the progress.
        files: the number of the unit's files.
        total_bytes: their total length.
    """

    def __init__(self, progress: Progress, files: int, total_bytes: int) -> None:
        self._progress, self._files, self._bytes = progress, files, total_bytes
        self._told = (0, 0, 0)
        self._mutex = threading.Lock()

    def tell_rewritten(self, files: int) -> None:
        """Report the number of files that are rewritten so far."""
        part = STAGING * min(1.0, files / max(1, self._files))
        self._tell(int(self._files * part), int(self._bytes * part))

    def tell_done(self) -> None:
        """Report that the unit is done."""
        self._tell(self._files, self._bytes, 1)

    def tell_unchanged(self) -> None:
        """Report that the unit is unchanged, so its progress is taken back."""
        self._tell(0, 0)

    def _tell(self, files: int, total_bytes: int, units: int = 0) -> None:
        with self._mutex:
            before, self._told = self._told, (files, total_bytes, units)
            if self._told != before:
                self._progress.advance(files - before[0], total_bytes - before[1], units - before[2])
