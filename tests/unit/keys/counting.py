"""A key service that counts its calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from sparkcrypt.keys.opened import LoggingKeyService
from sparkcrypt.keys.service import KeyService

T = TypeVar("T")


class CountingKeyService(LoggingKeyService):
    """Counts calls per operation and key id, those that fail too, since they reached the key service."""

    def __init__(self, service: KeyService) -> None:
        super().__init__(service)
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()

    @property
    def wraps(self) -> int:
        """Number of wraps."""
        return sum(self.count_by_key("wrap").values())

    @property
    def unwraps(self) -> int:
        """Number of unwraps."""
        return sum(self.count_by_key("unwrap").values())

    def count_by_key(self, operation: str) -> dict[str, int]:
        """Return the number of calls of an operation per key id."""
        with self._lock:
            return {key_id: count for (name, key_id), count in self._calls.items() if name == operation}

    def _call(self, verb: str, key_id: str | None, call: Callable[[KeyService], T]) -> T:
        if key_id is not None:
            with self._lock:
                self._calls[verb, key_id] += 1
        return super()._call(verb, key_id, call)
