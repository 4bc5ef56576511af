"""The key service over Azure Key Vault and Managed HSM, through their REST API.

Azure's own client is not used: it wraps locally with the public half of a key that it may read, so a disabled version
would still wrap, and the vault's log would not record it (docs/keys.md).

Source: https://learn.microsoft.com/rest/api/keyvault/keys, version 7.4.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.identity import (
    CredentialUnavailableError,
    EnvironmentCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
    SparkcryptError,
    causes_of,
)
from sparkcrypt.keys.ids import NameRule, check_key_id
from sparkcrypt.keys.provider import (
    NetworkOptions,
    ProviderKeyService,
    address,
    choice,
    login,
    read_options,
    shorten_reason,
)
from sparkcrypt.keys.rest import Body, TokenRest
from sparkcrypt.keys.service import ABSENT_ADVICE, KeyDeletion, KeyDescription, read_wrapped
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

ADDRESS = "https://acme.vault.azure.net"
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "environment": ("method",),
    "workload": ("method", "client_id"),
    "managed": ("method", "client_id"),
}
RSA_WRAP, AES_WRAP = "RSA-OAEP-256", "A256KW"
KEY_TYPES: dict[str, tuple[str, int]] = {
    "RSA": (RSA_WRAP, 3072),
    "RSA-HSM": (RSA_WRAP, 3072),
    "oct-HSM": (AES_WRAP, 256),
}
"""Type of a new key -> the algorithm that wraps with it, and its bits."""
_OWN_NAME = re.compile(r"keys/([A-Za-z0-9-]{1,127})", re.ASCII)
_NAMES = NameRule("a-z0-9", "-", 127, "Azure Key Vault")
_DOMAINS = (
    *("vault.azure.net", "managedhsm.azure.net", "vault.azure.cn", "managedhsm.azure.cn"),
    *("vault.usgovcloudapi.net", "managedhsm.usgovcloudapi.net"),
)
_FILES = ("AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE")
_PASSING = re.compile(r"HTTP Error: (?:408|429|5[0-9][0-9])\b|temporarily_unavailable|server_error|AADSTS90033:")
"""Texts of msal, below azure-identity, for transient failures (RFC 6749, 4.1.2.1); it does not expose the answer."""
_NEEDS = {
    "environment": "set AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH in "
    "the environment of this process, or name another auth.method",
    "workload": "AZURE_TENANT_ID, AZURE_CLIENT_ID (or auth.client_id) and AZURE_FEDERATED_TOKEN_FILE must be set, as "
    "workload identity sets them in pods",
    "managed": "this machine, pod or cluster must have a managed identity; with several, name one by auth.client_id",
}
_API = {"api-version": "7.4"}
_RECOVERABLE = "ObjectIsDeletedButRecoverable"
_PREFIX = "azure:v1:"
_WRAPPED = re.compile(rf"{_PREFIX}({RSA_WRAP}|{AES_WRAP}):([0-9a-f]{{32}}):([A-Za-z0-9+/]+={{0,2}})", re.ASCII)
_VERSION = re.compile("[0-9a-f]{32}", re.ASCII)
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class AzureOptions(NetworkOptions):
    """The checked options."""

    address: str = address(ADDRESS, missing=f"allowed: the vault's, such as {ADDRESS}", has_path=False)
    method: str = login(AUTH_OPTIONS)
    client_id: str | None = login(
        AUTH_OPTIONS,
        "client_id",
        pattern="[A-Za-z0-9-]{1,64}",
        allowed="the client id of an identity, such as 00000000-0000-0000-0000-000000000000",
    )
    key_type: str = choice(*KEY_TYPES, default="RSA")

    @property
    def scope(self) -> str:
        """The scope of access tokens: the vaults or managed HSMs of the cloud that the address belongs to."""
        host = urlsplit(self.address).hostname or ""
        domain = next((domain for domain in _DOMAINS if host.endswith(f".{domain}")), _DOMAINS[0])
        return f"https://{domain}/.default"


def is_own(key_id: str) -> bool:
    """Return whether a key id is the name of a key that users create, ``keys/<name>``."""
    return _OWN_NAME.fullmatch(key_id) is not None


def name_key(key_id: str) -> str:
    """Return a key's name in the vault: the name in ``keys/<name>``, or a name that encodes any other key id.

    Azure ignores case in names, so capital letters are escaped.

    Raises:
        ConfigError: the key id is empty, is not Unicode, or has a name that is too long.
    """
    own = _OWN_NAME.fullmatch(key_id)
    return own[1] if own else _NAMES.encode(key_id)


def find_key_id(name: str) -> str | None:
    """Return the key id that a key of the vault stands for by its name, or None if it stands for none."""
    found = _NAMES.decode(name)
    return found if found is not None and not is_own(found) else None


class AzureCredentials:
    """A source of access tokens, which renews them in time; safe for many threads.

    Args:
        options: the source, and the vault.
    """

    def __init__(self, options: AzureOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._credential: Any = None

    def __repr__(self) -> str:
        return f"AzureCredentials({self._options.method!r})"

    def token(self, *, renew: bool = False) -> str:
        """Return an access token.

        Args:
            renew: get a new token, since the cached one was refused.

        Raises:
            ConfigError: there is no credential, or it is invalid.
            KeyAccessDeniedError: Azure gives no token for it.
            KeyServiceUnavailableError: the token endpoint does not answer.
        """
        with self._lock:
            try:
                if renew or self._credential is None:
                    self._credential = _make(self._options)
                return str(self._credential.get_token(self._options.scope).token)
            except (AzureError, ValueError) as error:
                self._credential = None  # msal repeats a refusal for a minute
                raise _translate_lack(error, self._options) from error

    def sign(self, _method: str, _url: str, *, renew: bool) -> Mapping[str, str]:
        """Return the headers that authorise a request; errors as `token`."""
        return {"Authorization": f"Bearer {self.token(renew=renew)}"}

    def identity(self, environ: Mapping[str, str] = os.environ) -> bytes:
        """Return a digest of the credential's source, with the content of its files."""
        parts = [self._options.method, self._options.client_id or ""]
        if self._options.method != "managed":
            parts += [f"{name}={environ[name]}" for name in sorted(environ) if name.startswith("AZURE_")]
            for name in _FILES:
                with suppress(OSError):
                    parts.append(Path(environ.get(name, "")).read_bytes().hex())
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()


def _make(options: AzureOptions) -> Any:
    arguments: dict[str, Any] = {} if options.client_id is None else {"client_id": options.client_id}
    if options.method == "managed":
        return ManagedIdentityCredential(**arguments)
    # sparkcrypt.keys.steady retries transient failures of every key service, within one budget.
    seconds = options.timeout_seconds
    bounds: dict[str, Any] = {"retry_total": 0, "connection_timeout": seconds, "read_timeout": seconds}
    # The token host comes from the launch's environment, so no other host is asked whether to trust it.
    if options.method == "workload":
        return WorkloadIdentityCredential(disable_instance_discovery=True, **arguments, **bounds)
    return EnvironmentCredential(disable_instance_discovery=True, **bounds)


def _is_passing(error: ClientAuthenticationError) -> bool:
    """Return whether a failure is transient: azure-identity reports every failure as one of authentication."""
    return any(
        isinstance(cause, ServiceRequestError | ServiceResponseError) or _PASSING.search(str(cause))
        for cause in causes_of(error)
    )


def _translate_lack(error: Exception, options: AzureOptions) -> SparkcryptError:
    what = f"Azure Key Vault at {options.address}: no access token"
    if isinstance(error, CredentialUnavailableError | ValueError):
        return ConfigError(
            f"{what}: no credential is there for auth.method {options.method!r}: {_NEEDS[options.method]}"
        )
    if isinstance(error, ClientAuthenticationError) and not _is_passing(error):
        reason = shorten_reason(error.message)
        return KeyAccessDeniedError(
            f"{what}: {reason}; the credential is revoked, expired or of another tenant, or this machine's clock is "
            "wrong: give another one, or set the clock"
        )
    return KeyServiceUnavailableError(
        f"{what}: what gives tokens does not answer ({type(error).__name__}); check the network and, where it is set, "
        "AZURE_AUTHORITY_HOST"
    )


def _translate_refusal(http: int, answer: dict[str, Any], where: str) -> KeyServiceError:
    error = answer.get("error")
    fields = error if isinstance(error, dict) else {}
    inner = fields.get("innererror")
    detail = str(inner.get("code", "")) if isinstance(inner, dict) else ""
    code, reason = str(fields.get("code", "")), shorten_reason(fields.get("message", ""))
    if http in {408, 429} or http >= 500:
        return KeyServiceUnavailableError(f"{where}: it cannot serve now ({code or f'HTTP {http}'})")
    if http in {401, 403}:
        return KeyAccessDeniedError(
            f"{where}: {detail or code or f'HTTP {http}'}: {reason}; allow it to this credential: keys/wrapKey, "
            "keys/unwrapKey and keys/get on the vault or the key; a version that is disabled must be enabled"
        )
    if not code:
        return KeyServiceUnavailableError(
            f"{where}: what answers there is no Azure Key Vault (HTTP {http}); check address"
        )
    if http == 404:
        return KeyNotFoundError(f"{where}: it is not there ({reason}); check address, {ABSENT_ADVICE}")
    if detail == _RECOVERABLE:
        return KeyNotFoundError(
            f"{where}: it was deleted, and its name is kept while it can be recovered; recover it in Azure"
        )
    if http == 409:
        return KeyServiceUnavailableError(f"{where}: it cannot serve now ({detail or code}: {reason})")
    return KeyServiceError(f"{where}: {code}: {reason}")


class AzureKeyService(ProviderKeyService):
    """A key service that wraps by ``wrapkey`` of an RSA key, or of a Managed HSM's AES key; safe for many threads.

    The newest version wraps.  Neither algorithm takes additional data, so a digest of the key id (32 bytes, SHA-256)
    is wrapped before the key: what one key id wrapped opens under no other.  A wrapped text is
    ``azure:v1:<algorithm>:<version>:<base64>``; address and name never come from it.

    Options: ``address`` of the vault or HSM, ``auth`` (``{method: environment}``, ``workload`` or ``managed``),
        ``key_type`` of new keys (``RSA``), ``ca_bundle``, ``timeout_seconds`` (10, per try), ``max_retries`` (5).

    Raises:
        ConfigError: an option is not right.
    """

    product, form = "Azure Key Vault", "azure:v1:<algorithm>:<version>:<base64>"
    own_names = "a name that people give; make that key in Azure"

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(AzureOptions, config)
        self._where = f"{self.product} at {self._options.address}"
        self._credentials = AzureCredentials(self._options)
        self._rest = TokenRest(self._where, self._credentials.sign, self._options, "address", _translate_refusal)
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
        answer = self._ask("POST", f"keys/{name}//wrapkey", f"wrap with key {key_id!r}", body)
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
            raise self._make_form_error(key_id)
        body = {"alg": found[1], "value": _to_url64(blob)}
        answer = self._ask("POST", f"keys/{name}/{found[2]}/unwrapkey", f"unwrap with key {key_id!r}", body)
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
        newest = self._ask("GET", f"keys/{name}", f"read key {key_id!r}")
        try:
            times = sorted(
                _creation_time(entry) for entry in self._list_pages(f"keys/{name}/versions", f"read key {key_id!r}")
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
        with self._creating:
            return super().create(key_id)

    def _make(self, key_id: str) -> None:
        kind = self._options.key_type
        body = {"kty": kind, "key_size": KEY_TYPES[kind][1], "key_ops": ["wrapKey", "unwrapKey"]}
        self._ask("POST", f"keys/{name_key(key_id)}/create", f"create key {key_id!r}", body)

    def _is_own(self, key_id: str) -> bool:
        return is_own(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier versions still unwrap."""
        self._ask("POST", f"keys/{name_key(key_id)}/rotate", f"rotate key {key_id!r}", {})
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
            answer = self._ask("DELETE", f"keys/{name}", f"delete key {key_id!r}")
        except KeyNotFoundError:
            answer = self._ask("GET", f"deletedkeys/{name}", f"delete key {key_id!r}")
        final, level = answer.get("scheduledPurgeDate"), str((answer.get("attributes") or {}).get("recoveryLevel", ""))
        where = self._where
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
        entries = self._list_pages("keys", "list keys")
        return self._describe_all(find_key_id(str(entry.get("kid", "")).rpartition("/")[2]) for entry in entries)

    def credential_identity(self) -> bytes:
        """Return a digest of the credential's source."""
        return self._credentials.identity()

    def _ask(self, method: str, path: str, what: str, body: Body = None) -> dict[str, Any]:
        return self._rest.ask(method, f"{self._options.address}/{path}", what, body, _API)

    def _list_pages(self, path: str, what: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list, page by page.

        Raises:
            KeyServiceError: the next page is on another host, which would get the token.
        """
        answer = self._ask("GET", path, what)
        while True:
            yield from answer.get("value") or ()
            following = answer.get("nextLink")
            if not following:
                return
            if not str(following).startswith(f"{self._options.address}/"):
                raise KeyServiceError(
                    f"{self._where}: cannot {what}: its list goes on at another address, which is not asked; see that "
                    "address names the vault as Azure does"
                )
            answer = self._rest.ask("GET", str(following), what)

    def _take(self, answer: Mapping[str, Any], key_id: str) -> bytes:
        text, data = str(answer.get("value", "")), b""
        with suppress(ValueError):
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if not data:
            raise KeyServiceError(f"key {key_id!r}: the answer of {self._where} holds no value; check address")
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


def _creation_time(described: Mapping[str, Any]) -> int:
    """Return the creation time of a key or a version, in seconds since 1970; 0 if the answer does not contain it."""
    created = (described.get("attributes") or {}).get("created")
    return created if isinstance(created, int) else 0


def _time(seconds: int) -> str | None:
    return utc_text(datetime.fromtimestamp(seconds, timezone.utc)) if seconds else None
