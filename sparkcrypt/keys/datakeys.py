"""Data keys, opened from the key metadata of files or made for new files, with as few key-service calls as possible.

A reader makes one call per distinct wrapped KEK, a writer one per master key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from sparkcrypt.errors import ConfigError, FormatError, KeyServiceError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.keys.service import KeyService, Unwrapper
from sparkcrypt.keys.wrapping import seal_key, unseal_key

KEY_BYTES = (16, 24, 32)
KEK_ID_BYTES = 16
DEFAULT_INSTANCE = "DEFAULT"
"""What parquet-mr and Arrow write when no instance was configured (``KmsClient.KMS_INSTANCE_ID_DEFAULT``)."""
_FOREVER = float("inf")
_FILE_LABEL = b"sparkcrypt file identity\0"


class DataKeyOpener:
    """An opener of data keys that caches KEKs; safe for many threads.

    The cache is keyed by master key id, KEK id and a digest of the wrapped KEK: key material is not authenticated, so a
    file may contain another file's KEK id beside other bytes.  A refusal is never cached, and a slow answer delays only
    threads that wait for the same KEK.

    Args:
        service: unwraps KEKs.
        lifetime_seconds: how long a KEK is kept after it was unwrapped; 0 or less keeps none.
        stale_seconds: how long beyond that a KEK is used while the key service does not answer, unless `forget` was
            called for its master key.
    """

    def __init__(self, service: Unwrapper, *, lifetime_seconds: float = 600.0, stale_seconds: float = 0.0) -> None:
        self._service = service
        self._keks: ExpiringCache[tuple[str, str, bytes], bytes] = ExpiringCache(
            lifetime_seconds, stale_seconds=stale_seconds
        )

    def __repr__(self) -> str:
        return f"DataKeyOpener({self._service!r})"

    def forget(self, master_key_id: str) -> None:
        """Forget every KEK of a master key that no longer exists, or that this credential may no longer use."""
        self._keks.forget(lambda kept: kept[0] == master_key_id)

    def open_metadata(self, key_metadata: bytes | None) -> bytes:
        """Return the DEK inside a file's key metadata, as a footer or a column chunk stores it.

        Raises:
            FormatError: it contains no key material, or `open` raises it.
            KeyServiceError: the key service did not unwrap.
        """
        return self.open(parse_key_material(key_metadata or b""))

    def open(self, material: KeyMaterial, *, lifetime_seconds: float | None = None) -> bytes:
        """Return the DEK inside key material.

        Args:
            material: the file's key material.
            lifetime_seconds: the greatest age of a cached KEK that the caller accepts, and how long a KEK that this
                call opens is cached; None: the lifetime of this opener.

        Raises:
            FormatError: the DEK was not wrapped by its KEK, or was wrapped for another file than its material names, or
                a length or an encoding is wrong.
            KeyServiceError: the key service did not unwrap.
        """
        if material.kek_id is None or material.wrapped_kek is None:
            if material.file_identity is not None:
                raise FormatError(
                    f"key material under master key {material.master_key_id!r} names a file, and no KEK that could "
                    "authenticate its name; allowed: double wrapping"
                )
            return _check_length(
                self._service.unwrap(material.master_key_id, material.wrapped_dek), material, "data key"
            )
        kek = self.open_kek(material, lifetime_seconds=lifetime_seconds)
        try:
            dek = unseal_key(kek, material.wrapped_dek, _aad(_kek_id_bytes(material), material.file_identity))
        except ValueError as error:
            raise FormatError(
                f"key material under master key {material.master_key_id!r}: its data key is not one that its KEK "
                f"wrapped ({error}); restore the file or write it again"
            ) from error
        return _check_length(dek, material, "data key")

    def open_kek(self, material: KeyMaterial, *, lifetime_seconds: float | None = None) -> bytes:
        """Return the KEK of key material under double wrapping.

        Args:
            material: as `open`.
            lifetime_seconds: as `open`.

        Raises:
            FormatError: the material names no KEK, or one of a wrong length.
            KeyServiceError: the key service did not unwrap.
        """
        if material.kek_id is None or material.wrapped_kek is None:
            raise FormatError(
                f"key material under master key {material.master_key_id!r} names no KEK; allowed: double wrapping"
            )
        wrapped_kek = material.wrapped_kek
        digest = hashlib.sha256(wrapped_kek.encode("utf-8", "surrogatepass")).digest()
        return self._keks.get(
            (material.master_key_id, material.kek_id, digest),
            lambda: _check_length(self._service.unwrap(material.master_key_id, wrapped_kek), material, "KEK"),
            lifetime_seconds=lifetime_seconds,
        )


@dataclass(frozen=True, slots=True)
class WrappedKek(JsonObject):
    """A wrapped KEK, which may be stored and sent.

    Attributes:
        master_key_id: the master key that wrapped it, decoded.
        kek_id: base64 of its 16 id bytes.
        wrapped_kek: the text that the key service returned for it.
    """

    master_key_id: str
    kek_id: str
    wrapped_kek: str


@dataclass(frozen=True, slots=True)
class RewrappedKek(JsonObject):
    """A KEK that the key service has rewrapped.

    Attributes:
        before: the KEK as files may contain it.
        wrapped_kek: the text that replaces it there.
    """

    before: WrappedKek
    wrapped_kek: str


@dataclass(frozen=True, slots=True)
class _Kek:
    wrapped: WrappedKek
    key: bytes = field(repr=False)


class DataKeyMaker:
    """A maker of data keys and their key metadata, with one KEK per master key; safe for many threads.

    Args:
        service: wraps KEKs.
        data_key_bits: 128, 192 or 256; KEKs are as long.
        keks: KEKs of earlier runs or of the driver, reused instead of new ones: each costs one unwrap.

    Raises:
        ConfigError: ``data_key_bits`` has another value.
    """

    def __init__(self, service: KeyService, *, data_key_bits: int, keks: Iterable[WrappedKek] = ()) -> None:
        if data_key_bits // 8 not in KEY_BYTES or data_key_bits % 8:
            raise ConfigError(f"data_key_bits is {data_key_bits}; allowed: 128, 192, 256")
        self._service = service
        self._key_bytes = data_key_bits // 8
        self._given = {kek.master_key_id: kek for kek in keks}
        self._keks: ExpiringCache[str, _Kek] = ExpiringCache(_FOREVER)
        self._made: dict[str, WrappedKek] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"DataKeyMaker({self._service!r}, data_key_bits={self._key_bytes * 8})"

    def make(
        self, master_key_id: str, *, is_footer_key: bool, file_identity: bytes | None = None
    ) -> tuple[bytes, bytes]:
        """Return a new random DEK and its key metadata; arguments and errors as `wrap`."""
        dek = os.urandom(self._key_bytes)
        return dek, self.wrap(dek, master_key_id, is_footer_key=is_footer_key, file_identity=file_identity)

    def wrap(self, dek: bytes, master_key_id: str, *, is_footer_key: bool, file_identity: bytes | None = None) -> bytes:
        """Return key metadata for an existing DEK (a file is rewrapped, its data are unchanged).

        Args:
            dek: the data key.
            master_key_id: the master key that wraps the KEK.
            is_footer_key: whether the DEK is a Parquet footer's.
            file_identity: identity of the only file that the DEK is for, if only the wrapping can bind it to that file.

        Raises:
            KeyServiceError: the key service did not wrap the KEK (or unwrap one that was given).
        """
        kek = self._keks.get(master_key_id, lambda: self._kek(master_key_id))
        return KeyMaterial(
            is_footer_key=is_footer_key,
            kms_instance_id=DEFAULT_INSTANCE if is_footer_key else None,
            kms_instance_url=DEFAULT_INSTANCE if is_footer_key else None,
            master_key_id=master_key_id,
            wrapped_dek=seal_key(kek.key, dek, _aad(base64.b64decode(kek.wrapped.kek_id), file_identity)),
            kek_id=kek.wrapped.kek_id,
            wrapped_kek=kek.wrapped.wrapped_kek,
            file_identity=file_identity,
        ).to_bytes()

    def wrapped_keks(self) -> tuple[WrappedKek, ...]:
        """Return the KEKs in use, wrapped, sorted by master key id."""
        with self._lock:
            return tuple(self._made[key_id] for key_id in sorted(self._made))

    def _kek(self, master_key_id: str) -> _Kek:
        wrapped = self._given.get(master_key_id)
        if wrapped is not None:
            kek = _Kek(wrapped, self._service.unwrap(master_key_id, wrapped.wrapped_kek))
            if len(kek.key) != self._key_bytes:
                raise KeyServiceError(
                    f"the KEK of master key {master_key_id!r} has {len(kek.key) * 8} bits; allowed: "
                    f"{self._key_bytes * 8}, as data_key_bits says; let a new one be made"
                )
        else:
            key, kek_id = os.urandom(self._key_bytes), base64.b64encode(os.urandom(KEK_ID_BYTES)).decode()
            kek = _Kek(WrappedKek(master_key_id, kek_id, self._service.wrap(master_key_id, key)), key)
        with self._lock:
            self._made[master_key_id] = kek.wrapped
        return kek


def _aad(kek_id: bytes, file_identity: bytes | None) -> bytes:
    """Return the AAD of a wrapped DEK: the KEK's id, as in parquet-mr, and the file that the DEK is for.

    The identity is hashed: at its full length, bytes could be moved between it and the id before it.
    """
    if file_identity is None:
        return kek_id
    return kek_id + hashlib.sha256(_FILE_LABEL + file_identity).digest()


def _kek_id_bytes(material: KeyMaterial) -> bytes:
    try:
        return base64.b64decode(material.kek_id or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(
            f"key material under master key {material.master_key_id!r}: keyEncryptionKeyID is not base64; allowed: "
            "base64"
        ) from error


def _check_length(key: bytes, material: KeyMaterial, what: str) -> bytes:
    if len(key) not in KEY_BYTES:
        raise FormatError(
            f"key material under master key {material.master_key_id!r}: its {what} has {len(key)} bytes; allowed: "
            "16, 24, 32"
        )
    return key
