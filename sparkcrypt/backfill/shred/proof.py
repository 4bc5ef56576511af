"""Proof that a master key no longer exists: a process that has never used it asks the key service to unwrap with it."""

from __future__ import annotations

import base64
import secrets

from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import KeyNotFoundError, KeyServiceError, VerificationError
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

_PROBE_BYTES = 16
_NO_PROBE = "nothing that a key service wrapped"


def make_probe(service: KeyService, config: KeyServiceConfig, key_id: str) -> str:
    """Return random bytes wrapped by a key, after another process has unwrapped them.

    Args:
        service: the key service.
        config: the configuration of the same key service, for the other process.
        key_id: the master key.

    Raises:
        KeyServiceError: the key does not wrap, or these credentials may not wrap or unwrap with it.
        VerificationError: the other process unwrapped other bytes.
    """
    secret = secrets.token_bytes(_PROBE_BYTES)
    try:
        probe = service.wrap(key_id, secret)
        opened = _unwrap_elsewhere(config, key_id, probe)
    except KeyServiceError as error:
        raise type(error)(
            f"{error}; who shreds a key must be able to wrap and unwrap with it, since its deletion is proven by what "
            "it wrapped before; nothing was deleted"
        ) from error
    if opened != secret:
        raise VerificationError(f"key {key_id!r} did not unwrap what it had wrapped; nothing was deleted")
    return probe


def prove_gone(config: KeyServiceConfig, key_id: str, probe: str | None) -> None:
    """Check that a new process cannot unwrap with a key because the key does not exist.

    Args:
        config: the configuration of the key service.
        key_id: the master key.
        probe: the text from `make_probe`; None if the key did not exist when its shredding began.

    Raises:
        VerificationError: the key service still has the key, or gives another reason.
    """
    try:
        _unwrap_elsewhere(config, key_id, probe or _NO_PROBE)
    except KeyNotFoundError:
        return
    except KeyServiceError as error:
        raise VerificationError(
            f"key {key_id!r}: its deletion is not proven, since the key service does not say that it is gone: {error}; "
            "give the command again, which goes on"
        ) from error
    raise VerificationError(
        f"key {key_id!r} still unwraps what it wrapped, though its key service was told to delete it; look there, and "
        "give the command again, which goes on"
    )


def _unwrap_elsewhere(config: KeyServiceConfig, key_id: str, wrapped: str) -> bytes:
    with HelperClient(helper_command()) as helper:
        answer = helper.call("unwrap", key_service=config.canonical(), key_id=encode_key_id(key_id), wrapped=wrapped)
        return base64.b64decode(answer["key"])
