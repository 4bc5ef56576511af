"""An open key service with the caches of a process: refusals, KEKs and decisions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from sparkcrypt.keys.access_decisions import KeyDecisions, RefusalKeeper
from sparkcrypt.keys.call_log import LoggingKeyService
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

if TYPE_CHECKING:
    from sparkcrypt.keys.datakeys import DataKeyOpener

_PROCESS_SECRET = os.urandom(32)


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
        service: the key service; every call to it is logged (`sparkcrypt.keys.call_log`).
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
