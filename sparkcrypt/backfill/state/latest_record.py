"""Numbered records of one folder, of which the newest replaces those before it."""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.backfill.state.store import StateStore


class LatestRecord:
    """What was kept last below a name, such as ``passes/<table id>/``; what is acted upon bears a MAC."""

    def __init__(self, store: StateStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def read(self) -> Iterator[bytes]:
        """Yield the contents that are there, the newest first; the others are what interrupted writers left."""
        for name in reversed(self._store.list(self._folder)):
            yield self._store.read(name) or b""

    def replace(self, content: bytes) -> None:
        """Keep a content and delete those before it; where another writer was faster, that one's is kept."""
        names = self._store.list(self._folder)
        number = int(names[-1].rpartition("/")[2].removesuffix(".json")) + 1 if names else 1
        if self._store.create(f"{self._folder}{number:08d}.json", content):
            for name in names:
                self._store.delete(name)
