"""A store of records in memory, for tests that damage them a thousand times."""

from __future__ import annotations


class MemoryStore:
    """A store of names and bytes, for tests that damage a journal a thousand times."""

    def __init__(self, records: dict[str, bytes]) -> None:
        self.records = records

    def create(self, name: str, content: bytes) -> bool:
        """Keep a record."""
        return self.records.setdefault(name, content) is content

    def read(self, name: str) -> bytes | None:
        """Return a record."""
        return self.records.get(name)

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return names."""
        return tuple(sorted(name for name in self.records if name.startswith(prefix)))

    def delete(self, name: str) -> None:
        """Forget a record."""
        self.records.pop(name, None)
