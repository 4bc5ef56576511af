"""The interface for the progress of a run, which the command line shows and a library call ignores by default."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A receiver of a run's progress; in a pass, of one run after the other."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Receive the amount of work of a run; progress is counted from here."""

    def step(self, unit: str, step: str) -> None:
        """Receive a unit's step (staging, verifying, swapping), possibly before `start` or after `finish`."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Receive the numbers of further finished files, bytes and units; negative numbers take them back."""

    def finish(self) -> None:
        """Receive the end of the run, whether or not it succeeded."""


class Silent:
    """A receiver that ignores all progress."""

    def start(self, target: str, units: int, files: int, total_bytes: int) -> None:
        """Do nothing."""

    def step(self, unit: str, step: str) -> None:
        """Do nothing."""

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
