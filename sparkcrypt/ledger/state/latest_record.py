"""Numbered records of one folder, the newest of which replaces the others."""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.ledger.state.store import StateStore


class LatestRecord:
    """The latest record below a name, such as ``passes/<table id>/``; records that are acted on have a MAC."""

    def __init__(self, store: StateStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def read(self) -> Iterator[bytes]:
        """Yield the contents of the records, newest first; more than one is left by an interrupted writer."""
        for name in reversed(self._store.list(self._folder)):
            yield self._store.read(name) or b""

    def replace(self, content: bytes) -> None:
        """Write a record and delete those before it; if another writer wrote this number first, its record stays."""
        names = self._store.list(self._folder)
        number = int(names[-1].rpartition("/")[2].removesuffix(".json")) + 1 if names else 1
        if self._store.create(f"{self._folder}{number:08d}.json", content):
            for name in names:
                self._store.delete(name)
