"""The progress of one unit while its files are rewritten."""

from __future__ import annotations

import threading

from sparkcrypt.backfill.report.progress import Progress

STAGING = 0.9
"""Which part of a unit's work its rewrite is: the bar is not at its end while files are still verified and swapped."""


class Share:
    """Tells a part of a unit's files and bytes at a time; what is told in the end is all of them, or nothing.

    Args:
        progress: hears it.
        files: of the unit.
        total_bytes: their length.
    """

    def __init__(self, progress: Progress, files: int, total_bytes: int) -> None:
        self._progress, self._files, self._bytes = progress, files, total_bytes
        self._told = (0, 0, 0)
        self._mutex = threading.Lock()

    def tell_rewritten(self, files: int) -> None:
        """So many files are rewritten."""
        part = STAGING * min(1.0, files / max(1, self._files))
        self._tell(int(self._files * part), int(self._bytes * part))

    def tell_done(self) -> None:
        """The unit is done."""
        self._tell(self._files, self._bytes, 1)

    def tell_unchanged(self) -> None:
        """The unit is as it was."""
        self._tell(0, 0)

    def _tell(self, files: int, total_bytes: int, units: int = 0) -> None:
        with self._mutex:
            before, self._told = self._told, (files, total_bytes, units)
            if self._told != before:
                self._progress.advance(files - before[0], total_bytes - before[1], units - before[2])
