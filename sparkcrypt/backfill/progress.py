"""What a run tells of its progress; the command line shows it, a library call keeps silent."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears of a run's progress."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """The run knows what is to do."""

    def step(self, unit: str, step: str) -> None:
        """A unit enters a step: staging, verifying, swapping."""

    def advance(self, files: int, total_bytes: int) -> None:
        """A unit of so many files and bytes is done."""

    def finish(self) -> None:
        """The run is over, well or not."""


class Silent:
    """Says nothing."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Say nothing."""

    def step(self, unit: str, step: str) -> None:
        """Say nothing."""

    def advance(self, files: int, total_bytes: int) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""
