"""Progress that keeps what it was told."""

from __future__ import annotations

from sparkcrypt.runs.table.progress import Progress


class Heard(Progress):
    """Keeps what was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int]] = []

    def advance(self, files: int, total_bytes: int, units: int = 0) -> None:
        """Keep it."""
        self.told.append((files, total_bytes, units))


def summed(heard: Heard) -> tuple[int, ...]:
    """Return all that was told, together."""
    return tuple(map(sum, zip(*heard.told, strict=True))) or (0, 0, 0)
