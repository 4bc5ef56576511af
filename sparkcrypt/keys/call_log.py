"""A key service that logs its calls to a file, if the environment names one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, SparkcryptError
from sparkcrypt.keys.access_decisions import AccessDecider, Decision
from sparkcrypt.keys.service import CredentialBearer, KeyDescription, KeyService

KEY_LOG = "SPARKCRYPT_KEY_LOG"
"""Environment variable: a file to which one JSON line per call is appended: op, key_id, pid, outcome."""
T = TypeVar("T")


class LoggingKeyService:
    """A key service that passes every call to another one and logs it with its outcome; safe for many threads.

    Args:
        service: the key service that is called.
        on_refusal: called with the key id whenever the service reports that a key does not exist or is denied.
    """

    def __init__(self, service: KeyService, *, on_refusal: Callable[[str], object] = lambda key_id: None) -> None:
        self._service = service
        self._on_refusal = on_refusal

    def __repr__(self) -> str:
        return f"LoggingKeyService({self._service!r})"

    @property
    def serve_stale_seconds(self) -> int:
        """How long an opened key is used beyond its lifetime while the other key service does not answer."""
        return getattr(self._service, "serve_stale_seconds", 0)

    def wrap(self, key_id: str, key: bytes) -> str:
        """Wrap a key, and log the call."""
        return self._log_call("wrap", key_id, lambda: self._service.wrap(key_id, key))

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unwrap a key, and log the call."""
        return self._log_call("unwrap", key_id, lambda: self._service.unwrap(key_id, wrapped))

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key, and log the call."""
        return self._log_call("describe", key_id, lambda: self._service.describe(key_id))

    def create(self, key_id: str) -> KeyDescription:
        """Create a key, and log the call."""
        return self._log_call("create", key_id, lambda: self._service.create(key_id))

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """List the keys; this is not logged, since the call names no key."""
        return self._service.list_keys()

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Ask about one key per call, and log each; empty if the other key service has no such verb."""
        if not isinstance(self._service, AccessDecider):
            return {}
        decider, found = self._service, dict[str, Decision]()
        for key_id in key_ids:
            decisions = self._log_call("may", key_id, partial(decider.may, (key_id,)))
            if decisions.get(key_id, "allowed") != "allowed":
                self._on_refusal(key_id)
            found.update(decisions)
        return found

    def credential_identity(self) -> bytes:
        """Return the other key service's identity, or no bytes if it has none."""
        return self._service.credential_identity() if isinstance(self._service, CredentialBearer) else b""

    def _log_call(self, operation: str, key_id: str, call: Callable[[], T]) -> T:
        try:
            result = call()
        except SparkcryptError as error:
            if isinstance(error, KeyAccessDeniedError | KeyNotFoundError):
                self._on_refusal(key_id)
            _append(operation, key_id, type(error).__name__)
            raise
        _append(operation, key_id, "ok")
        return result


def _append(operation: str, key_id: str, outcome: str) -> None:
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
