"""AES-GCM as Parquet's key tools use it for keys: base64 of nonce, ciphertext and tag, in that order."""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
TAG_BYTES = 16


def seal_key(wrapping_key: bytes, key: bytes, aad: bytes) -> str:
    """Return ``base64(nonce(12) | ciphertext | tag(16))`` with a fresh random nonce.

    Source: parquet-java, ``KeyToolkit.encryptKeyLocally``.
    """
    nonce = os.urandom(NONCE_BYTES)
    return base64.b64encode(nonce + AESGCM(wrapping_key).encrypt(nonce, key, aad)).decode()


def unseal_key(wrapping_key: bytes, text: str, aad: bytes) -> bytes:
    """Return the key inside a text of ``seal_key``.

    Raises:
        ValueError: it is not base64, too short, altered, or made with another key or AAD.
    """
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64") from error
    if len(blob) <= NONCE_BYTES + TAG_BYTES:
        raise ValueError(f"{len(blob)} bytes are too few")
    try:
        return AESGCM(wrapping_key).decrypt(blob[:NONCE_BYTES], blob[NONCE_BYTES:], aad)
    except InvalidTag as error:
        raise ValueError("altered, or wrapped with another key") from error
