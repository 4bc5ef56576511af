"""The access-token value that keeps Parquet's static key caches apart: one per key service and credential.

Those caches are keyed by this value before all else, so whoever can name another's value gets that one's keys.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

from sparkcrypt.keys.service import CredentialBearer, KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

_PROCESS_SECRET = os.urandom(32)


def access_token(config: KeyServiceConfig, service: KeyService) -> str:
    """Return the value for a key service as this process uses it.

    Args:
        config: the key service's configuration.
        service: the open service; its ``credential_identity``, where it has one, tells credentials apart.

    Returns:
        Base64 of 32 bytes, which cannot be guessed, and are the same for the same arguments as long as this process
        lives.
    """
    identity = service.credential_identity() if isinstance(service, CredentialBearer) else b""
    credential = hmac.new(_PROCESS_SECRET, identity, hashlib.sha256).digest()
    message = config.canonical().encode() + b"\0" + credential
    return base64.b64encode(hmac.new(_PROCESS_SECRET, message, hashlib.sha256).digest()).decode()
