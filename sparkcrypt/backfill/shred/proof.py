"""The proof that a master key is gone: a process that has never used it asks the key service to unwrap with it."""

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
    """Return what a key wraps, random bytes, once another process has unwrapped it.

    Args:
        service: the key service.
        config: the same, for the other process.
        key_id: the master key.

    Raises:
        KeyServiceError: the key does not wrap, or these credentials may not wrap or unwrap with it.
        VerificationError: the other process unwrapped something else.
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
    """See that a new process cannot unwrap with a key, because the key is not there.

    Args:
        config: the key service.
        key_id: the master key.
        probe: what it wrapped before; None where it was gone when somebody first looked.

    Raises:
        VerificationError: the key service still has it, or says something else.
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
