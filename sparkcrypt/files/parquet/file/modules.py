"""Encrypts and authenticates the modules of a Parquet file; the only module of this package that does cryptography.

A module is framed as ``length (4 bytes, little endian) | nonce (12) | ciphertext | tag (16)``; pages under
AES_GCM_CTR_V1 have no tag.  The signature of a plaintext footer is ``nonce (12) | tag (16)``, unframed.
Source: Parquet Modular Encryption, sections 4 and 5.1.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from sparkcrypt.errors import ConfigError, FormatError, VerificationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LENGTH_BYTES = 4
NONCE_BYTES = 12
TAG_BYTES = 16
FRAME_BYTES = LENGTH_BYTES + NONCE_BYTES + TAG_BYTES
"""How much longer a GCM module is than its plaintext."""
SIGNATURE_BYTES = NONCE_BYTES + TAG_BYTES
FILE_UNIQUE_BYTES = 8
"""The length that every known writer uses.  The specification leaves it open; with another length, a prefix may pass
for part of the file-unique."""
MAX_ORDINAL = 0x7FFF
MAX_INVOCATIONS = 1 << 32
"""The most encryptions under one key with random nonces (NIST SP 800-38D, section 8.3)."""

_KEY_BYTES = (16, 24, 32)
_SEALED_AT = LENGTH_BYTES + NONCE_BYTES
_CTR_START = b"\x00\x00\x00\x01"


class ModuleType(IntEnum):
    """The module types of section 4.4.2."""

    FOOTER = 0
    COLUMN_META_DATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9


_ORDINALS = {module: 2 for module in ModuleType} | {
    ModuleType.FOOTER: 0,
    ModuleType.DATA_PAGE: 3,
    ModuleType.DATA_PAGE_HEADER: 3,
}
_SUFFIXES = {0: Struct("<B").pack, 2: Struct("<BHH").pack, 3: Struct("<BHHH").pack}


def module_aad(file_aad: bytes, module: ModuleType, *ordinals: int) -> bytes:
    """Return the AAD of a module.

    Args:
        file_aad: AAD prefix (if any) and file-unique, concatenated.
        module: the module's type.
        ordinals: row group, column and page, those that the type has (section 4.4.2); none for the footer.

    Raises:
        FormatError: an ordinal is outside 0 to 32,767.
        ValueError: too many or too few ordinals for the type.
    """
    if len(ordinals) != _ORDINALS[module]:
        raise ValueError(f"{module.name} takes {_ORDINALS[module]} ordinals, not {len(ordinals)}")
    for ordinal in ordinals:
        if not 0 <= ordinal <= MAX_ORDINAL:
            raise FormatError(
                f"row group, column or page number {ordinal} of an encrypted column; expected 0 to {MAX_ORDINAL}"
            )
    return file_aad + _SUFFIXES[len(ordinals)](module, *ordinals)


class ModuleCipher:
    """A cipher that encrypts and decrypts modules with one data key.  The key is not in its repr.

    Each encryption uses a new random nonce; GCM and CTR encryptions are counted together, and refused beyond 2^32.
    """

    __slots__ = ("_aes", "_encrypt_into", "_gcm", "_invalid_tag", "_invocations")

    def __init__(self, key: bytes) -> None:
        """Initialise the cipher with a key of 16, 24 or 32 bytes.

        Raises:
            ConfigError: the key has another length.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import algorithms
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(key) not in _KEY_BYTES:
            raise ConfigError(
                f"a data key has {len(key)} bytes; allowed: 16, 24 or 32; correct what retrieves or makes the key"
            )
        self._gcm: AESGCM = AESGCM(key)
        self._encrypt_into = getattr(self._gcm, "encrypt_into", None)
        self._aes = algorithms.AES(key)
        self._invalid_tag = InvalidTag
        self._invocations = 0

    def encrypt(self, plaintext: bytes | memoryview, aad: bytes) -> bytes:
        """Return the framed GCM module of ``plaintext``."""
        nonce = self._nonce()
        sealed = self._gcm.encrypt(nonce, plaintext, aad)
        return b"".join(((NONCE_BYTES + len(sealed)).to_bytes(LENGTH_BYTES, "little"), nonce, sealed))

    def encrypt_into(self, plaintext: bytes | memoryview, aad: bytes, target: memoryview) -> int:
        """Write the framed GCM module of ``plaintext`` to the start of ``target``, and return its length."""
        size = FRAME_BYTES + len(plaintext)
        nonce = self._nonce()
        target[:_SEALED_AT] = (size - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "little") + nonce
        if self._encrypt_into is None:  # cryptography before 47
            target[_SEALED_AT:size] = self._gcm.encrypt(nonce, plaintext, aad)
        else:
            self._encrypt_into(nonce, plaintext, aad, target[_SEALED_AT:size])
        return size

    def decrypt(self, module: bytes | memoryview, aad: bytes, what: object) -> bytes:
        """Authenticate and decrypt a framed GCM module; ``str(what)`` is its name in messages.

        Raises:
            FormatError: the frame's length is not the module's.
            VerificationError: it does not authenticate.
        """
        body = unframe(module, NONCE_BYTES + TAG_BYTES, what)
        try:
            return self._gcm.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], aad)
        except self._invalid_tag as error:
            raise VerificationError(_not_authentic(what)) from error

    def encrypt_ctr(self, plaintext: bytes | memoryview) -> bytes:
        """Return the framed CTR module of ``plaintext``; nothing in it is authenticated."""
        nonce = self._nonce()
        return b"".join(
            ((NONCE_BYTES + len(plaintext)).to_bytes(LENGTH_BYTES, "little"), nonce, self._ctr(nonce, plaintext))
        )

    def decrypt_ctr(self, module: bytes | memoryview, what: object) -> bytes:
        """Decrypt a framed CTR module, which is not authenticated: altered bytes decrypt without an error.

        Raises:
            FormatError: the frame's length is not the module's.
        """
        body = unframe(module, NONCE_BYTES, what)
        return self._ctr(bytes(body[:NONCE_BYTES]), body[NONCE_BYTES:])

    def sign(self, footer: bytes, aad: bytes) -> bytes:
        """Return the 28-byte signature of a plaintext footer (section 5.3)."""
        nonce = self._nonce()
        return nonce + self._gcm.encrypt(nonce, footer, aad)[-TAG_BYTES:]

    def verify_signature(self, footer: bytes, signature: bytes, aad: bytes) -> None:
        """Check the signature of a plaintext footer.

        Raises:
            VerificationError: it is not the signature of these bytes under this key and AAD.
        """
        expected = self._gcm.encrypt(signature[:NONCE_BYTES], footer, aad)[-TAG_BYTES:]
        if not hmac.compare_digest(expected, signature[NONCE_BYTES:]):
            raise VerificationError(_not_authentic("the signature of the plaintext footer"))

    def _nonce(self) -> bytes:
        if self._invocations >= MAX_INVOCATIONS:
            raise FormatError(
                f"a data key was used {MAX_INVOCATIONS} times, its limit; encrypt smaller files or larger pages"
            )
        self._invocations += 1
        return os.urandom(NONCE_BYTES)

    def _ctr(self, nonce: bytes, data: bytes | memoryview) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher, modes

        context = Cipher(self._aes, modes.CTR(nonce + _CTR_START)).encryptor()
        return context.update(data) + context.finalize()


class SecretFingerprint:
    """Fingerprints of successive byte strings under a secret key, computed much faster than a hash.

    Each fingerprint is a GMAC with the string's number as nonce.  For an attacker without the key, two different
    strings of the same number have the same fingerprint with a probability of at most their length / 2^124.  Since
    numbers repeat from one file to the next, fingerprints are secret: use them only as input of a keyed hash.
    """

    __slots__ = ("_gcm", "_number")

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._gcm: AESGCM = AESGCM(key)
        self._number = 0

    def next_fingerprint(self, data: bytes | memoryview) -> bytes:
        """Return the 16-byte fingerprint of the next string."""
        self._number += 1
        return self._gcm.encrypt(self._number.to_bytes(NONCE_BYTES, "little"), b"", data)


def unframe(module: bytes | memoryview, least_bytes: int, what: object) -> memoryview:
    """Return a framed module without its length field.

    Raises:
        FormatError: the length field is not the length of the rest, or the rest is shorter than ``least_bytes``.
    """
    body = memoryview(module)[LENGTH_BYTES:]
    length = int.from_bytes(module[:LENGTH_BYTES], "little")
    if length != len(body) or length < least_bytes:
        raise FormatError(
            f"{what}: module of length {length} in {len(body)} bytes; expected equal, and at least {least_bytes}"
        )
    return body


def _not_authentic(what: object) -> str:
    causes = "wrong key, wrong AAD prefix, moved from another place, or altered"
    return f"{what} does not authenticate: {causes}; restore the file or correct the key"


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A request for one data key.

    ``file`` is the source's name, for messages.  ``column`` is None for the footer's key.  ``key_metadata`` is what the
    writer stored in the file to identify the key; it may be None or empty.
    """

    file: str
    column: tuple[str, ...] | None
    key_metadata: bytes | None


RetrieveKey: TypeAlias = Callable[[KeyRequest], bytes]
"""Returns the data key: 16, 24 or 32 bytes.  Its exceptions reach the caller unchanged."""

VerifyAad: TypeAlias = Callable[[bytes], None]
"""Raises if an AAD prefix is not the one that the caller expects."""

AadPrefix: TypeAlias = bytes | VerifyAad
"""The AAD prefix of a file that does not store it, or a check that is called with a stored one before a key is used."""


class FileCiphers:
    """The ciphers of one file; each key is requested once, when it is first needed."""

    __slots__ = ("_ciphers", "_retrieve_key", "file")

    def __init__(self, file: str, retrieve_key: RetrieveKey) -> None:
        self.file = file
        self._retrieve_key = retrieve_key
        self._ciphers: dict[tuple[str, ...] | None, ModuleCipher] = {}

    def cipher(self, column: tuple[str, ...] | None, key_metadata: bytes | None) -> ModuleCipher:
        """Return the cipher of a column's own key, or of the footer's key when ``column`` is None.

        A column's key metadata is the same in every row group, which `column_crypto` checks.
        """
        known = self._ciphers.get(column)
        if known is None:
            known = ModuleCipher(self._retrieve_key(KeyRequest(self.file, column, key_metadata)))
            self._ciphers[column] = known
        return known
