"""A key service that counts its calls, and writes them down where the environment says so."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from sparkcrypt.errors import ConfigError, SparkcryptError
from sparkcrypt.keys.service import CredentialBearer, KeyDescription, KeyService

KEY_LOG = "SPARKCRYPT_KEY_LOG"
"""Environment variable: a file to which one JSON line per call is appended: op, key_id, pid, outcome."""
T = TypeVar("T")


class CountingKeyService:
    """Passes every call on to another key service, counting them per operation and key id; safe for many threads.

    Calls that fail count too: they reached the key service.
    """

    def __init__(self, service: KeyService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()

    def __repr__(self) -> str:
        return f"CountingKeyService({self._service!r})"

    @property
    def wraps(self) -> int:
        """Number of wraps."""
        return sum(self.wraps_by_key.values())

    @property
    def unwraps(self) -> int:
        """Number of unwraps."""
        return sum(self.unwraps_by_key.values())

    @property
    def wraps_by_key(self) -> dict[str, int]:
        """Number of wraps per key id."""
        return self._by_key("wrap")

    @property
    def unwraps_by_key(self) -> dict[str, int]:
        """Number of unwraps per key id."""
        return self._by_key("unwrap")

    def wrap(self, key_id: str, key: bytes) -> str:
        """Count, then wrap."""
        return self._counted("wrap", key_id, lambda: self._service.wrap(key_id, key))

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Count, then unwrap."""
        return self._counted("unwrap", key_id, lambda: self._service.unwrap(key_id, wrapped))

    def describe(self, key_id: str) -> KeyDescription:
        """Count, then describe."""
        return self._counted("describe", key_id, lambda: self._service.describe(key_id))

    def create(self, key_id: str) -> KeyDescription:
        """Count, then create."""
        return self._counted("create", key_id, lambda: self._service.create(key_id))

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """List; this is not counted, since it names no key."""
        return self._service.list_keys()

    def credential_identity(self) -> bytes:
        """Return that of the service beneath, or nothing when it has none."""
        return self._service.credential_identity() if isinstance(self._service, CredentialBearer) else b""

    def _by_key(self, operation: str) -> dict[str, int]:
        with self._lock:
            return {key_id: count for (name, key_id), count in self._calls.items() if name == operation}

    def _counted(self, operation: str, key_id: str, call: Callable[[], T]) -> T:
        with self._lock:
            self._calls[operation, key_id] += 1
        try:
            result = call()
        except SparkcryptError as error:
            _log(operation, key_id, type(error).__name__)
            raise
        _log(operation, key_id, "ok")
        return result


def _log(operation: str, key_id: str, outcome: str) -> None:
    path = os.environ.get(KEY_LOG)
    if not path:
        return
    line = json.dumps({"op": operation, "key_id": key_id, "pid": os.getpid(), "outcome": outcome}) + "\n"
    try:
        # One write to a file opened for appending: lines of several processes do not mix.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(
            f"{KEY_LOG} names {path!r}, which cannot be written ({error.strerror}); unset it or mend it"
        ) from error
