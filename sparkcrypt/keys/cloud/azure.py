"""The key service over Azure Key Vault and Managed HSM, through their REST API.

Azure's own client is not used: it wraps locally with the public half of a key that it may read, so a disabled version
would still wrap, and the vault's log would not record it (docs/keys.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.cloud.azure_http import AzureHttp
from sparkcrypt.keys.cloud.azure_options import (
    AES_WRAP,
    KEY_TYPES,
    RSA_WRAP,
    AzureOptions,
    find_key_id,
    is_own,
    name_key,
)
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.provider_options import read_options
from sparkcrypt.keys.service import KeyDeletion, KeyDescription, KeyService, read_wrapped
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

_PREFIX = "azure:v1:"
_WRAPPED = re.compile(rf"{_PREFIX}({RSA_WRAP}|{AES_WRAP}):([0-9a-f]{{32}}):([A-Za-z0-9+/]+={{0,2}})", re.ASCII)
_VERSION = re.compile("[0-9a-f]{32}", re.ASCII)
_DIGEST_BYTES = 32


class AzureKeyService(KeyService):
    """A key service that wraps by ``wrapkey`` of an RSA key, or of a Managed HSM's AES key; safe for many threads.

    The newest version wraps.  Neither algorithm takes additional data, so a digest of the key id (32 bytes, SHA-256)
    is wrapped before the key: what one key id wrapped opens under no other.  A wrapped text is
    ``azure:v1:<algorithm>:<version>:<base64>``; address and name never come from it.

    Options: ``address`` of the vault or HSM, ``auth`` (``{method: environment}``, ``workload`` or ``managed``),
        ``key_type`` of new keys (``RSA``), ``ca_bundle``, ``timeout_seconds`` (10, per try), ``max_retries`` (5).

    Raises:
        ConfigError: an option is not right.
    """

    retries_itself = False

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(AzureOptions, config)
        self._http = AzureHttp(self._options)
        self._creating = threading.Lock()

    def __repr__(self) -> str:
        return f"AzureKeyService({self._options.address!r})"

    def wrap(self, key_id: str, key: bytes) -> str:
        """Return ``azure:v1:<algorithm>:<version>:<base64 of the ciphertext>``, of the key's newest version.

        Raises:
            KeyNotFoundError: there is no such key, or it was deleted.
            KeyAccessDeniedError: this credential may not wrap with it, or it is disabled.
            KeyServiceError: the key is of another kind than the policy's ``key_type``.
        """
        name, algorithm = name_key(key_id), KEY_TYPES[self._options.key_type][0]
        body = {"alg": algorithm, "value": _to_url64(_binding(key_id) + key)}
        answer = self._http.ask("POST", f"keys/{name}//wrapkey", f"wrap with key {key_id!r}", body)
        version = _version_of(answer, name)
        if version is None:
            raise KeyServiceError(
                f"key {key_id!r}: Azure Key Vault wrapped with {answer.get('kid')!r} where a version of {name!r} was "
                "asked for"
            )
        return f"{_PREFIX}{algorithm}:{version}:{base64.b64encode(self._take(answer, key_id)).decode()}"

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the key inside a wrapped text.

        Raises:
            KeyNotFoundError: there is no such key or version, or it was deleted.
            KeyAccessDeniedError: this credential may not unwrap with it, or the version is disabled.
            KeyServiceError: the text is not one that this key wrapped under this key id.
        """
        name, found = name_key(key_id), _WRAPPED.fullmatch(wrapped)
        blob = read_wrapped("", found[3]) if found else b""
        if found is None or not blob:
            self.describe(key_id)  # a missing key is reported before a wrong text
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is not one of Azure Key Vault; allowed: azure:v1:<algorithm>:"
                "<version>:<base64>; was it wrapped by another key service?"
            )
        body = {"alg": found[1], "value": _to_url64(blob)}
        answer = self._http.ask("POST", f"keys/{name}/{found[2]}/unwrapkey", f"unwrap with key {key_id!r}", body)
        opened = self._take(answer, key_id)
        if len(opened) <= _DIGEST_BYTES or not hmac.compare_digest(opened[:_DIGEST_BYTES], _binding(key_id)):
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is not one that was wrapped under this key id; was it copied from "
                "another key's?"
            )
        return opened[_DIGEST_BYTES:]

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key by its versions; none is reported if these credentials may not list them.

        Raises:
            KeyNotFoundError: there is no such key, or it was deleted.
        """
        name = name_key(key_id)
        newest = self._http.ask("GET", f"keys/{name}", f"read key {key_id!r}")
        try:
            times = sorted(
                _creation_time(entry) for entry in self._http.pages(f"keys/{name}/versions", f"read key {key_id!r}")
            )
        except KeyAccessDeniedError:
            return KeyDescription(key_id, 0, None, _time(_creation_time(newest)))
        times = times or [_creation_time(newest)]
        return KeyDescription(key_id, len(times), _time(times[0]), _time(times[-1]))

    def create(self, key_id: str) -> KeyDescription:
        """Create a key; an existing one is left unchanged.

        Azure adds a version to a key that exists already: two processes that create a key concurrently may leave it
        with two versions, each of which unwraps what it wrapped.

        Raises:
            KeyNotFoundError: a key of this name was deleted: Azure keeps its name while it can be recovered.
            KeyAccessDeniedError: this credential may not create keys.
            ConfigError: the key id is the name of a key that users create, ``keys/<name>``.
        """
        kind = self._options.key_type
        size = KEY_TYPES[kind][1]
        with self._creating:
            try:
                return self.describe(key_id)
            except KeyNotFoundError as absent:
                if is_own(key_id):
                    raise ConfigError(
                        f"key id {key_id!r} is a name that people give; make that key in Azure, or use another id"
                    ) from absent
            body = {"kty": kind, "key_size": size, "key_ops": ["wrapKey", "unwrapKey"]}
            self._http.ask("POST", f"keys/{name_key(key_id)}/create", f"create key {key_id!r}", body)
        return self.describe(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier versions still unwrap.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        self._http.ask("POST", f"keys/{name_key(key_id)}/rotate", f"rotate key {key_id!r}", {})
        return self.describe(key_id)

    def delete_key(self, key_id: str) -> KeyDeletion:
        """Delete a key with all of its versions; a user with that right can recover it until Azure purges it.

        It is not purged here: a vault with purge protection does not allow that, and elsewhere it takes another right.

        Raises:
            KeyNotFoundError: there is no such key, nor one that was deleted and can be recovered.
            KeyAccessDeniedError: this credential may not delete it, or may not see that it was deleted.
        """
        name = name_key(key_id)
        try:
            answer = self._http.ask("DELETE", f"keys/{name}", f"delete key {key_id!r}")
        except KeyNotFoundError:
            answer = self._http.ask("GET", f"deletedkeys/{name}", f"delete key {key_id!r}")
        final, level = answer.get("scheduledPurgeDate"), str((answer.get("attributes") or {}).get("recoveryLevel", ""))
        where = f"Azure Key Vault at {self._options.address}"
        if final is None and not answer.get("recoveryId"):
            return KeyDeletion(
                key_id, None, f"{where} deleted the key {name!r} for good; backups of it may be restored"
            )
        until = "it is purged" if final is None else _time(int(final))
        purge = (
            "whoever may purge keys can end that before" if "Purgeable" in level else "nobody can purge it before that"
        )
        return KeyDeletion(
            key_id,
            None if final is None else _time(int(final)),
            f"{where} uses the key {name!r} for nothing from now on; until {until} whoever has keys/recover brings it "
            f"back, and {purge}; backups of the key may be restored",
        )

    def list_keys(self) -> tuple[KeyDescription, ...]:
        """Describe every key of the vault whose name stands for a key id.

        Raises:
            KeyAccessDeniedError: this credential may not list keys.
        """
        ids = set()
        for entry in self._http.pages("keys", "list keys"):
            key_id = find_key_id(str(entry.get("kid", "")).rpartition("/")[2])
            if key_id is not None:
                ids.add(key_id)
        return tuple(self.describe(key_id) for key_id in sorted(ids))

    def credential_identity(self) -> bytes:
        """Return a digest of the credential's source."""
        return self._http.credentials.identity()

    def _take(self, answer: Mapping[str, Any], key_id: str) -> bytes:
        data = _from_url64(answer.get("value"))
        if not data:
            raise KeyServiceError(
                f"key {key_id!r}: the answer of Azure Key Vault at {self._options.address} holds no value; check "
                "address"
            )
        return data


def _binding(key_id: str) -> bytes:
    return hashlib.sha256(b"sparkcrypt azure wrap\0" + check_key_id(key_id)).digest()


def _version_of(answer: Mapping[str, Any], name: str) -> str | None:
    """Return the version that an answer names, or None if it is of another key."""
    head, _, version = str(answer.get("kid", "")).rpartition("/")
    right = head.rpartition("/keys/")[2].lower() == name.lower() and _VERSION.fullmatch(version) is not None
    return version if right else None


def _to_url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_url64(text: object) -> bytes:
    if not isinstance(text, str):
        return b""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _creation_time(described: Mapping[str, Any]) -> int:
    """Return the creation time of a key or a version, in seconds since 1970; 0 if the answer does not contain it."""
    created = (described.get("attributes") or {}).get("created")
    return created if isinstance(created, int) else 0


def _time(seconds: int) -> str | None:
    return utc_text(datetime.fromtimestamp(seconds, timezone.utc)) if seconds else None
