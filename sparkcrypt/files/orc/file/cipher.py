"""Encrypts and decrypts streams under local keys; the only module of this package that does cryptography.

AES in counter mode: encryption and decryption are the same operation, and nothing is authenticated.  A stream's first
counter block is ``column (3 bytes) | kind (2) | stripe id (3) | 0 (8)``, big endian; statistics use the number of
stripes plus one as stripe id.  Source: ORC specification v1, "Stream Encryption"; ``CryptoUtils`` of ORC's Java code.
"""

from __future__ import annotations

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.encryption import Variant
from sparkcrypt.files.parquet.file.keys import KeyRequest, RetrieveKey

BLOCK_BYTES = 16


class StreamCipher:
    """The cipher of one stream, used front to back; ``skipped`` bytes of the first keystream block are discarded."""

    __slots__ = ("_context",)

    def __init__(self, key: bytes, counter: bytes, skipped: int = 0) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._context = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
        self._context.update(bytes(skipped))

    def update(self, data: bytes) -> bytes:
        """Return the next bytes, encrypted or decrypted."""
        return self._context.update(data)


class LocalKey:
    """A local key that makes stream ciphers.  Its bytes are not in its repr."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def stream(self, column: int, kind: int, stripe_id: int, offset: int = 0) -> StreamCipher:
        """Return the cipher of one stream, starting at a byte offset in it."""
        blocks, rest = divmod(offset, BLOCK_BYTES)
        place = column.to_bytes(3, "big") + kind.to_bytes(2, "big") + stripe_id.to_bytes(3, "big")
        return StreamCipher(self._key, place + blocks.to_bytes(8, "big"), rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalKey) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class LocalKeys:
    """The local keys of one file; each is requested once, when it is first needed."""

    __slots__ = ("_file", "_keys", "_retrieve_key")

    def __init__(self, file: str, retrieve_key: RetrieveKey) -> None:
        self._file = file
        self._retrieve_key = retrieve_key
        self._keys: dict[tuple[int, bytes], LocalKey] = {}

    def open(self, variant: Variant, wrapped: bytes) -> LocalKey:
        """Return a local key of a variant.

        Raises:
            FormatError: its length is not that of the variant's algorithm.
        """
        local_key = self._keys.get((variant.number, wrapped))
        if local_key is None:
            key = self._retrieve_key(KeyRequest(self._file, variant.root.path, wrapped))
            if len(key) != variant.key.key_bytes:
                raise FormatError(
                    f"the local key of variant {variant.number} has {len(key)} bytes; expected "
                    f"{variant.key.key_bytes} for {variant.key.algorithm}"
                )
            local_key = self._keys[variant.number, wrapped] = LocalKey(key)
        return local_key
