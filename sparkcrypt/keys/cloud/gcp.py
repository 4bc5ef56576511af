"""The key service over Google Cloud KMS, through its REST API.

Google's own client is not used: it loads gRPC even when it uses REST, and needs versions of gRPC and protobuf that
Spark's processes may not have (docs/keys.md).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError, KeyServiceUnavailableError
from sparkcrypt.keys.cloud.gcp_http import GcpHttp
from sparkcrypt.keys.cloud.gcp_options import GcpOptions, KeyNames
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.provider_options import read_options
from sparkcrypt.keys.service import KeyDescription, KeyService, read_wrapped
from sparkcrypt.policy.key_service import KeyServiceConfig

_PREFIX = "gcp:v1:"
_PURPOSE = "ENCRYPT_DECRYPT"
_GONE = {"DESTROYED", "DESTROY_SCHEDULED"}
_PAGE = "1000"
_POLYNOMIAL = 0x82F63B78  # reflected; RFC 3720, appendix B.4


class GcpKeyService(KeyService):
    """A key service that wraps by ``encrypt``, with the key id as additional authenticated data; safe for many threads.

    Options: ``key_ring``, ``endpoint`` (Google's) or ``endpoints``, ``auth`` (``{method: file}`` or
        ``{method: metadata}``), ``protection_level`` of new keys (``SOFTWARE``), ``ca_bundle``, ``timeout_seconds``
        (10, per try), ``max_retries`` (5).

    Raises:
        ConfigError: an option is not right.
    """

    retries_itself = False

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(GcpOptions, config)
        self._names = KeyNames(self._options.key_ring)
        self._http = GcpHttp(self._options)

    def __repr__(self) -> str:
        return f"GcpKeyService({self._options.endpoint!r}, key_ring={self._options.key_ring!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``gcp:v1:<base64 of the ciphertext>``, of the key's primary version.

        Raises:
            KeyNotFoundError: there is no such key, or its primary version is destroyed.
            KeyAccessDeniedError: this credential may not encrypt with it, or its primary version is disabled.
            KeyServiceUnavailableError: the request or the answer was changed on its way.
        """
        name, aad = self._names.of(key_id), _aad(key_id)
        body = {**_field("plaintext", key), **_field("additionalAuthenticatedData", aad)}
        answer = self._http.ask("POST", f"{name}:encrypt", f"wrap with key {key_id!r}", body=body)
        if answer.get("verifiedPlaintextCrc32c") is not True or (
            answer.get("verifiedAdditionalAuthenticatedDataCrc32c") is not True
        ):
            raise self._damage_error(key_id, "it did not check what it was sent")
        if not _is_version_of(str(answer.get("name", "")), name):
            raise KeyServiceError(
                f"key {key_id!r}: Google Cloud KMS wrapped with {answer.get('name')!r} where {name!r} was asked for"
            )
        return _PREFIX + base64.b64encode(self._take_whole(answer, "ciphertext", key_id)).decode()

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a wrapped text.

        Raises:
            KeyNotFoundError: there is no such key, or the version that wrapped is destroyed.
            KeyAccessDeniedError: this credential may not decrypt with it, or that version is disabled.
            KeyServiceUnavailableError: the request or the answer was changed on its way.
            KeyServiceError: the text is not one that this key wrapped.
        """
        name, aad, blob = self._names.of(key_id), _aad(key_id), read_wrapped(_PREFIX, wrapped)
        if not blob:
            self.describe(key_id)  # a missing key is reported before a wrong text
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is not one of Google Cloud KMS; allowed: gcp:v1:<base64>; was it "
                "wrapped by another key service?"
            )
        body = {**_field("ciphertext", blob), **_field("additionalAuthenticatedData", aad)}
        answer = self._http.ask("POST", f"{name}:decrypt", f"unwrap with key {key_id!r}", body=body)
        return self._take_whole(answer, "plaintext", key_id)

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key by its primary version; if that is destroyed, or will be, the key counts as missing.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        answer = self._http.ask("GET", self._names.of(key_id), f"read key {key_id!r}")
        if answer.get("purpose") != _PURPOSE:
            raise KeyServiceError(
                f"key {key_id!r} has the purpose {answer.get('purpose')!r} in Google Cloud KMS; allowed: {_PURPOSE}"
            )
        if _is_gone(answer):
            raise KeyNotFoundError(
                f"key {key_id!r} has no primary version in Google Cloud KMS that is not destroyed, nor to be "
                f"({_state(answer) or 'none'}); restore one there"
            )
        return _describe(key_id, answer)

    def create(self, key_id: str) -> KeyDescription:
        """Create a symmetric key in the key ring; an existing one is left unchanged.

        Raises:
            KeyNotFoundError: the key ring is not there, or a key of this name was destroyed: Google keeps its name.
            KeyAccessDeniedError: this credential may not create keys.
            ConfigError: the key id is a resource name.
        """
        try:
            return self.describe(key_id)
        except KeyNotFoundError as absent:
            if self._names.is_own(key_id):
                raise ConfigError(
                    f"key id {key_id!r} is a resource name; make that key in Google Cloud, or use another id"
                ) from absent
        body = {
            "purpose": _PURPOSE,
            "versionTemplate": {
                "algorithm": "GOOGLE_SYMMETRIC_ENCRYPTION",
                "protectionLevel": self._options.protection_level,
            },
        }
        ring, _, name = self._names.of(key_id).rpartition("/cryptoKeys/")
        try:
            self._http.ask(
                "POST", f"{ring}/cryptoKeys", f"create key {key_id!r}", body=body, parameters={"cryptoKeyId": name}
            )
        except KeyServiceError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
        return self.describe(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version and make it the primary one, which wraps from now on; earlier versions still unwrap.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        name, what = self._names.of(key_id), f"rotate key {key_id!r}"
        made = self._http.ask("POST", f"{name}/cryptoKeyVersions", what, body={})
        body = {"cryptoKeyVersionId": str(made.get("name", "")).rpartition("/")[2]}
        self._http.ask("POST", f"{name}:updatePrimaryVersion", what, body=body)
        return self.describe(key_id)

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every symmetric key of the key ring whose name stands for a key id.

        Raises:
            ConfigError: the policy names no key ring.
            KeyAccessDeniedError: this credential may not list keys.
        """
        found, page = {}, ""
        while True:
            parameters = {"pageSize": _PAGE, **({"pageToken": page} if page else {})}
            answer = self._http.ask("GET", f"{self._names.ring()}/cryptoKeys", "list keys", parameters=parameters)
            for key in answer.get("cryptoKeys", ()):
                key_id = self._names.key_id(str(key.get("name", "")))
                if key_id is not None and key.get("purpose") == _PURPOSE and not _is_gone(key):
                    found[key_id] = _describe(key_id, key)
            page = str(answer.get("nextPageToken") or "")
            if not page:
                return tuple(found[key_id] for key_id in sorted(found))

    def credential_identity(self) -> bytes:
        """Return a digest of the credential's file, or of the service account's name."""
        return self._http.credentials.identity()

    def _take_whole(self, answer: Mapping[str, Any], name: str, key_id: str) -> bytes:
        """Return the bytes of a field of an answer after checking their checksum."""
        try:
            data = base64.b64decode(answer[name], validate=True)
            whole = crc32c(data) == int(answer[f"{name}Crc32c"])
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise self._damage_error(key_id, f"{name} and {name}Crc32c differ")
        return data

    def _damage_error(self, key_id: str, reason: str) -> KeyServiceUnavailableError:
        return KeyServiceUnavailableError(
            f"Google Cloud KMS at {self._options.endpoint}: the answer for key {key_id!r} was damaged on its way "
            f"({reason}); if that stays so, something between here and there changes it"
        )


def _field(name: str, data: bytes) -> dict[str, str]:
    return {name: base64.b64encode(data).decode(), f"{name}Crc32c": str(crc32c(data))}


def _aad(key_id: str) -> bytes:
    return b"sparkcrypt gcp wrap\0" + check_key_id(key_id)


def _is_version_of(version: str, name: str) -> bool:
    """Return whether a version is of a key; the answer may name a project by id where the request had its number."""
    return version.rpartition("/cryptoKeyVersions/")[0].partition("/locations/")[2] == name.partition("/locations/")[2]


def _state(described: Mapping[str, Any]) -> str:
    return str((described.get("primary") or {}).get("state", ""))


def _is_gone(described: Mapping[str, Any]) -> bool:
    return not _state(described) or _state(described) in _GONE


def _describe(key_id: str, described: Mapping[str, Any]) -> KeyDescription:
    number = str(described["primary"].get("name", "")).rpartition("/")[2]
    created, rotated = (_time(entry) for entry in (described, described["primary"]))
    return KeyDescription(key_id, int(number) if number.isdecimal() else 1, created, rotated)


def _time(described: Mapping[str, Any]) -> str | None:
    """Return the creation time of a key or a version, in whole seconds."""
    created = str(described.get("createTime") or "").partition(".")[0].rstrip("Z")
    return f"{created}Z" if created else None


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_row(byte) for byte in range(256))


def crc32c(data: bytes) -> int:
    """Return the checksum of a few bytes, such as a key: a table in Python is fast enough for them."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
