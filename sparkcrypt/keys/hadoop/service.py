"""The key service over Hadoop KMS, which wraps no given key: it makes a key of its own, and that key wraps.

To wrap, the KMS makes an encrypted key (EEK) and opens it; the opened key is used once, in this process, to seal the
given key.  A wrapped text contains the EEK and the sealed key.  To unwrap, the KMS opens the EEK.  An EEK is not
authenticated (AES-CTR); the seal is, and binds the key id and the EEK.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import KeyNotFoundError, KeyServiceError, KeyServiceUnavailableError
from sparkcrypt.keys.hadoop.http import KmsHttp
from sparkcrypt.keys.hadoop.options import NAMES, HadoopOptions, read_credential
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.provider_options import read_options
from sparkcrypt.keys.service import ABSENT_ADVICE, KeyDeletion, KeyDescription, KeyService, read_wrapped
from sparkcrypt.keys.wrapping import seal_key, unseal_key
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

_PREFIX = "hadoop:v1:"
_HEAD = struct.Struct(">I16sB")
_AES_BYTES = (16, 24, 32)
_CIPHER = "AES/CTR/NoPadding"


@dataclass(frozen=True, slots=True)
class _Eek:
    """An encrypted key: the master key's version, the initialization vector, and the encrypted bytes."""

    version: int
    iv: bytes
    material: bytes

    def to_bytes(self) -> bytes:
        return _HEAD.pack(self.version, self.iv, len(self.material)) + self.material


class HadoopKeyService(KeyService):
    """A key service that wraps as ``hadoop:v1:<base64 of EEK and sealed key>``; safe for many threads.

    A wrap costs two calls (an EEK is made, and opened), an unwrap one.

    Options: ``address`` (``https://host:9600/kms``) or ``addresses``, ``auth`` (``{method: kerberos}``,
        ``{method: token, token_file: …}`` or ``{method: simple, user: …}``), ``name_prefix`` (none),
        ``key_bits`` of new keys (256), ``ca_bundle``, ``timeout_seconds`` (10, per try), ``max_retries`` (5).

    Raises:
        ConfigError: an option is not right.
    """

    retries_itself = False

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(HadoopOptions, config)
        self._prefix = self._options.name_prefix or ""
        self._http = KmsHttp(self._options)

    def __repr__(self) -> str:
        return f"HadoopKeyService({self._options.address!r}, auth={self._options.method!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Seal a key under a new EEK of the newest version.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: this credential may not make or open EEKs of it.
        """
        name = self._name(key_id)
        answer = self._http.ask(
            "GET", f"key/{name}/_eek", f"wrap with key {key_id!r}", parameters={"eek_op": "generate", "num_keys": "1"}
        )
        eek = _eek_of(answer, name, key_id)
        head = eek.to_bytes()
        sealed = seal_key(self._open(key_id, eek, "wrap with"), key, _aad(key_id, head))
        return _PREFIX + base64.b64encode(head + base64.b64decode(sealed)).decode()

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a wrapped text.

        Raises:
            KeyNotFoundError: there is no such key, or not in that version.
            KeyAccessDeniedError: this credential may not open EEKs of it.
            KeyServiceError: the text is not one that this key wrapped.
        """
        parts = _parts(wrapped)
        if parts is None:
            self.describe(key_id)  # a missing key is reported before a wrong text
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is not one of Hadoop KMS; allowed: hadoop:v1:<base64>; was it "
                "wrapped by another key service?"
            )
        eek, sealed = parts
        opened = self._open(key_id, eek, "unwrap with")
        try:
            return unseal_key(opened, base64.b64encode(sealed).decode(), _aad(key_id, eek.to_bytes()))
        except ValueError as error:
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is {error}; use the KMS and the key id that it was wrapped with"
            ) from error

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        metadata = self._http.ask("GET", f"key/{self._name(key_id)}/_metadata", f"read key {key_id!r}")
        if not metadata:  # Hadoop KMS answers 200 and an empty object
            raise KeyNotFoundError(
                f"Hadoop KMS at {self._options.address}: key {key_id!r} is not there under the name "
                f"{self._name(key_id)!r}; {ABSENT_ADVICE}"
            )
        try:
            moment = datetime.fromtimestamp(int(metadata["created"]) / 1000, timezone.utc)
            return KeyDescription(key_id, int(metadata["versions"]), utc_text(moment))
        except (KeyError, TypeError, ValueError):
            raise self._make_foreign_error(key_id) from None

    def create(self, key_id: str) -> KeyDescription:
        """Create a key; an existing one is left unchanged.

        Raises:
            KeyAccessDeniedError: this credential may not create keys.
        """
        name = self._name(key_id)
        try:
            return self.describe(key_id)
        except KeyNotFoundError:
            pass
        body = {"name": name, "cipher": _CIPHER, "length": self._options.key_bits, "description": key_id}
        try:
            self._http.ask("POST", "keys", f"create key {key_id!r}", body=body)
        except KeyServiceError as error:
            if "already exists" not in str(error):
                raise
        return self.describe(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier versions still unwrap.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        self._http.ask("POST", f"key/{self._name(key_id)}", f"rotate key {key_id!r}", body={})
        return self.describe(key_id)

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Remove a key with every version.

        Raises:
            KeyNotFoundError: there is no such key.
            KeyAccessDeniedError: this credential may not delete keys.
        """
        self.describe(key_id)
        self._http.ask("DELETE", f"key/{self._name(key_id)}", f"delete key {key_id!r}")
        return KeyDeletion(
            key_id,
            None,
            f"Hadoop KMS at {self._options.address} deleted it with every version; other instances over the same key "
            "store may use it until their caches end (hadoop.kms.cache.timeout.ms), and backups of the key store may "
            "still hold it",
        )

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every key whose name stands for a key id.

        Raises:
            KeyAccessDeniedError: this credential may not list, or not read one of the keys.
        """
        names = self._http.ask("GET", "keys/names", "list keys") or []
        ids = (self._id_of(str(name)) for name in names)
        return tuple(self.describe(key_id) for key_id in sorted(filter(None, ids)))

    def credential_identity(self) -> bytes:
        """Return a digest of the user's name, the token, or the location of the ticket."""
        credential = read_credential(self._options)
        return hashlib.sha256(f"{credential.method}\0{credential.secret}".encode()).digest()

    def _name(self, key_id: str) -> str:
        return self._prefix + NAMES.encode(key_id)

    def _id_of(self, name: str) -> str | None:
        return NAMES.decode(name.removeprefix(self._prefix)) if name.startswith(self._prefix) else None

    def _open(self, key_id: str, eek: _Eek, doing: str) -> bytes:
        name = self._name(key_id)
        answer = self._http.ask(
            "POST",
            f"keyversion/{name}@{eek.version}/_eek",
            f"{doing} key {key_id!r}",
            parameters={"eek_op": "decrypt"},
            body={"name": name, "iv": _url_text(eek.iv), "material": _url_text(eek.material)},
        )
        try:
            opened = _url_bytes(answer["material"])
        except (KeyError, TypeError, ValueError):
            raise self._make_foreign_error(key_id) from None
        if len(opened) not in _AES_BYTES:
            raise KeyServiceError(f"key {key_id!r}: the wrapped key is cut; restore the file or write it again")
        return opened

    def _make_foreign_error(self, key_id: str) -> KeyServiceUnavailableError:
        return KeyServiceUnavailableError(
            f"what answered for key {key_id!r} at {self._options.address} is no Hadoop KMS; check the address"
        )


def _eek_of(answer: Any, name: str, key_id: str) -> _Eek:
    try:
        (document,) = answer
        found, _, version = str(document["versionName"]).rpartition("@")
        eek = _Eek(int(version), _url_bytes(document["iv"]), _url_bytes(document["encryptedKeyVersion"]["material"]))
        eek.to_bytes()
    except (KeyError, TypeError, ValueError, struct.error):
        raise KeyServiceUnavailableError(
            f"what answered for key {key_id!r} is no Hadoop KMS, or not one whose versions are called <name>@<number>"
        ) from None
    if found != name or len(eek.iv) != 16:
        raise KeyServiceError(f"Hadoop KMS made a key for {found!r} where {name!r} was asked for (key {key_id!r})")
    return eek


def _parts(wrapped: str) -> tuple[_Eek, bytes] | None:
    """Return the EEK and the sealed key of a wrapped text, or None if the text has another form."""
    blob = read_wrapped(_PREFIX, wrapped)
    if len(blob) < _HEAD.size:
        return None
    version, iv, length = _HEAD.unpack(blob[: _HEAD.size])
    material, sealed = blob[_HEAD.size : _HEAD.size + length], blob[_HEAD.size + length :]
    return (_Eek(version, iv, material), sealed) if length in _AES_BYTES and sealed else None


def _aad(key_id: str, head: bytes) -> bytes:
    return b"sparkcrypt hadoop wrap\0" + head + check_key_id(key_id)


def _url_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _url_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
