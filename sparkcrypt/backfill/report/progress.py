"""What a run tells of its progress; the command line shows it, a library call keeps silent."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears of a run's progress; in a pass, of one run after the other."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """A run knows what is to do; what is done is counted from here."""

    def step(self, unit: str, step: str) -> None:
        """A unit enters a step: staging, verifying, swapping; also before a start, and after a finish."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """So many more files and bytes are done, and with them so many units; less than none: they are taken back."""

    def finish(self) -> None:
        """The run is over, well or not."""


class Silent:
    """Says nothing."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Say nothing."""

    def step(self, unit: str, step: str) -> None:
        """Say nothing."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""
