"""A key service that logs its calls to a file, if the environment names one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, SparkcryptError
from sparkcrypt.keys.service import Decision, DelegatingKeyService, KeyService

KEY_LOG = "SPARKCRYPT_KEY_LOG"
"""Environment variable: a file to which one JSON line per call is appended: op, key_id, pid, outcome."""
T = TypeVar("T")


class LoggingKeyService(DelegatingKeyService):
    """A key service that passes every call to another one and logs it with its outcome; safe for many threads.

    The list of keys is not logged, since that call names no key.

    Args:
        service: the key service that is called.
        on_refusal: called with the key id whenever the service reports that a key does not exist or is denied.
    """

    def __init__(self, service: KeyService, *, on_refusal: Callable[[str], object] = lambda key_id: None) -> None:
        super().__init__(service)
        self._on_refusal = on_refusal

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        """Ask about one key per call, and log each; empty if the other key service has no such verb."""
        found = dict[str, Decision]()
        for key_id in key_ids if self.offers("may") else ():
            decisions = self._ask(key_id)
            if decisions.get(key_id, "allowed") != "allowed":
                self._on_refusal(key_id)
            found.update(decisions)
        return found

    def _ask(self, key_id: str) -> Mapping[str, Decision]:
        return self._call("may", key_id, lambda service: service.may((key_id,)))

    def _call(self, verb: str, key_id: str | None, call: Callable[[KeyService], T]) -> T:
        if key_id is None:
            return call(self._service)
        try:
            result = call(self._service)
        except SparkcryptError as error:
            if isinstance(error, KeyAccessDeniedError | KeyNotFoundError):
                self._on_refusal(key_id)
            _append(verb, key_id, type(error).__name__)
            raise
        _append(verb, key_id, "ok")
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
