"""A key service for throw-away probes only: every key id exists, and master keys are derived from one secret option.

Anyone who has the configuration has every key, so nothing that must be kept may be encrypted with it.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sparkcrypt.errors import ConfigError, KeyServiceError
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.service import KeyDescription, KeyService, check_options
from sparkcrypt.keys.wrapping import seal_key, unseal_key
from sparkcrypt.policy.key_service import KeyServiceConfig

_SECRET_BYTES = 32
_PREFIX = "ephemeral:"


class EphemeralKeyService(KeyService):
    """A key service that derives an AES-256 key per key id from the option ``secret`` (64 hex digits) by HKDF-SHA-256.

    Raises:
        ConfigError: the secret is missing or is not 32 bytes in hex.
    """

    def __init__(self, config: KeyServiceConfig) -> None:
        secret = check_options(config, ("secret",)).get("secret")
        try:
            self._secret = bytes.fromhex(secret) if isinstance(secret, str) else b""
        except ValueError:
            self._secret = b""
        if len(self._secret) != _SECRET_BYTES:
            raise ConfigError(
                "key_service of type 'ephemeral': 'secret' is not right; allowed: 32 random bytes as 64 hex digits"
            )

    def __repr__(self) -> str:
        return "EphemeralKeyService()"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``ephemeral:<base64 of nonce, ciphertext, tag>``."""
        return _PREFIX + seal_key(self._master_key(key_id), key, check_key_id(key_id))

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a wrapped text.

        Raises:
            KeyServiceError: it was not wrapped with this secret and key id.
        """
        try:
            return unseal_key(self._master_key(key_id), wrapped.removeprefix(_PREFIX), check_key_id(key_id))
        except ValueError as error:
            raise KeyServiceError(
                f"key {key_id!r} of a throw-away key service did not unwrap: the wrapped key is {error}; such keys "
                "are gone when the secret is"
            ) from error

    def describe(self, key_id: str) -> KeyDescription:
        """Return one version: every key id exists."""
        check_key_id(key_id)
        return KeyDescription(key_id, 1, None)

    def create(self, key_id: str) -> KeyDescription:
        """Do nothing: every key id exists."""
        return self.describe(key_id)

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Return nothing: no key is stored."""
        return ()

    def credential_identity(self) -> bytes:
        """Return a digest of the secret."""
        return hashlib.sha256(self._secret).digest()

    def _master_key(self, key_id: str) -> bytes:
        info = b"sparkcrypt ephemeral master key\0" + check_key_id(key_id)
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(self._secret)
