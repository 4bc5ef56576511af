"""An open key service with the caches of a process (refusals, KEKs and decisions), and the log of its calls."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, SparkcryptError
from sparkcrypt.keys.access_decisions import KeyDecisions, RefusalKeeper
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import Decision, DelegatingKeyService, KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

if TYPE_CHECKING:
    from sparkcrypt.keys.datakeys import DataKeyOpener

KEY_LOG = "SPARKCRYPT_KEY_LOG"
"""Environment variable: a file to which one JSON line per call is appended: op, key_id, pid, outcome."""
T = TypeVar("T")
_PROCESS_SECRET = os.urandom(32)


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


class WithKeyMetadata(Protocol):
    """A request for a data key of a file."""

    @property
    def key_metadata(self) -> bytes | None:
        """The key metadata that the file stores for the key."""
        ...


def open_data_keys(config: KeyServiceConfig) -> Callable[[WithKeyMetadata], bytes]:
    """Return a function that opens data keys of files by their key metadata, with KEKs cached by it alone.

    Args:
        config: the key service, which is opened for it.

    Raises:
        ConfigError: the key service's type or options are not right.
    """
    service = open_key_service(config)
    from sparkcrypt.keys.datakeys import DataKeyOpener  # after the key service's own library, see `OpenedKeyService`

    opener = DataKeyOpener(service)
    return lambda request: opener.open_metadata(request.key_metadata)


class OpenedKeyService:
    """A key service and its caches; safe for many threads.

    Attributes:
        service: the key service; every call to it is logged (`sparkcrypt.keys.opened`).
        keeper: unwraps, and repeats refusals for a short time.
        decisions: which master keys these credentials may use.

    Raises:
        ConfigError: the key service's type or options are not right.
    """

    def __init__(self, config: KeyServiceConfig) -> None:
        self.service = LoggingKeyService(open_key_service(config), on_refusal=self._forget)
        self.keeper = RefusalKeeper(self.service)
        self.decisions = KeyDecisions(self.service)

    @cached_property
    def opener(self) -> DataKeyOpener:
        """The opener of data keys, with one call per KEK; it forgets KEKs whose master key is gone or denied.

        It is made on first use, so that an interpreter without the key service's library reports that library first.
        """
        from sparkcrypt.keys.datakeys import DataKeyOpener

        return DataKeyOpener(self.keeper, stale_seconds=self.service.serve_stale_seconds)

    def __repr__(self) -> str:
        return f"OpenedKeyService({self.service!r})"

    def _forget(self, key_id: str) -> None:
        """Forget opened keys of a master key that is gone or denied, so that none is used after a known deletion."""
        if "opener" in self.__dict__:
            self.opener.forget(key_id)


def access_token(config: KeyServiceConfig, service: KeyService) -> str:
    """Return the token that separates Parquet's static key caches: one per key service and credential in this process.

    Those caches are keyed by it before all else, so a caller that can name another's token gets that one's keys.

    Args:
        config: the key service's configuration.
        service: the open service; its ``credential_identity`` tells credentials apart.

    Returns:
        Base64 of 32 bytes, which cannot be guessed, and are the same for the same arguments for the life of this
        process.
    """
    identity = service.credential_identity()
    credential = hmac.new(_PROCESS_SECRET, identity, hashlib.sha256).digest()
    message = config.canonical().encode() + b"\0" + credential
    return base64.b64encode(hmac.new(_PROCESS_SECRET, message, hashlib.sha256).digest()).decode()
