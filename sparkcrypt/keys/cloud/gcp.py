"""The key service over Google Cloud KMS, through its REST API.

Google's own client is not used: it loads gRPC even when it uses REST, and needs versions of gRPC and protobuf that
Spark's processes may not have (docs/keys.md).

Source: https://cloud.google.com/kms/docs/reference/rest, version 1, and ``google.rpc.Status`` for errors.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import requests
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
    SparkcryptError,
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
    text,
)
from sparkcrypt.keys.rest import Body, TokenRest, open_session
from sparkcrypt.keys.service import ABSENT_ADVICE, KeyDescription, read_wrapped
from sparkcrypt.policy.key_service import KeyServiceConfig

ENDPOINT = "https://cloudkms.googleapis.com"
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "file": ("method", "credentials_file"),
    "metadata": ("method", "service_account"),
}
_RING = r"projects/[A-Za-z0-9][A-Za-z0-9.:_-]{0,127}/locations/[a-z0-9-]{1,63}/keyRings/[A-Za-z0-9_-]{1,63}"
_OWN_NAME = re.compile(rf"{_RING}/cryptoKeys/[A-Za-z0-9_-]{{1,63}}", re.ASCII)
_VERSION = re.compile(rf"{_RING}/cryptoKeys/[A-Za-z0-9_-]{{1,63}}/cryptoKeyVersions/[0-9]+", re.ASCII)
_NAMES = NameRule("A-Za-z0-9-", "_", 63, "Google Cloud KMS")
FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPE = "https://www.googleapis.com/auth/cloudkms"
_KINDS = ("service_account", "authorized_user", "external_account", "impersonated_service_account")
_METADATA_HOSTS = ("169.254.169.254", "metadata.google.internal", "fd00:ec2::254")
_PASSING = {
    "ABORTED",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "INTERNAL",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "UNKNOWN",
}
_STATE = re.compile(r"current state is: ([A-Z_]+)")
_GONE = {"DESTROYED", "DESTROY_SCHEDULED"}
_WAITING = {"PENDING_GENERATION", "PENDING_IMPORT", "PENDING_EXTERNAL_DESTRUCTION"}
_PREFIX = "gcp:v1:"
_PURPOSE = "ENCRYPT_DECRYPT"
_PAGE = "1000"
_POLYNOMIAL = 0x82F63B78  # reflected; RFC 3720, appendix B.4


@dataclass(frozen=True, slots=True)
class GcpOptions(NetworkOptions):
    """The checked options."""

    key_ring: str | None = text(pattern=f"(?:{_RING})?", allowed="projects/…/locations/…/keyRings/…", stripped="/")
    endpoint: str = address(ENDPOINT, default=ENDPOINT)
    method: str = login(AUTH_OPTIONS)
    credentials_file: str | None = login(AUTH_OPTIONS, "credentials_file")
    service_account: str | None = login(
        AUTH_OPTIONS,
        "service_account",
        pattern="default|[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+",
        allowed="an account's e-mail address",
    )
    protection_level: str = choice("SOFTWARE", "HSM", default="SOFTWARE")


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The resource names for key ids: a resource name is used unchanged, any other id is a key of the key ring.

    Attributes:
        key_ring: the key ring's resource name; None if the policy names keys only by their resource names.
    """

    key_ring: str | None

    def of(self, key_id: str) -> str:
        """Return the resource name of a key.

        Raises:
            ConfigError: the key id is empty, is not Unicode, names a version, or needs a key ring and there is none.
        """
        check_key_id(key_id)
        if self.is_own(key_id):
            return key_id
        if _VERSION.fullmatch(key_id):
            raise ConfigError(
                f"key id {key_id!r} names a version; allowed: the key's own name, …/cryptoKeys/<key>, whose primary "
                "version wraps"
            )
        return f"{self.ring(key_id)}/cryptoKeys/{_NAMES.encode(key_id)}"

    def ring(self, key_id: str | None = None) -> str:
        """Return the key ring's resource name.

        Raises:
            ConfigError: the policy names none.
        """
        if self.key_ring is None:
            purpose = "listing keys" if key_id is None else f"key id {key_id!r}"
            raise ConfigError(
                f"key_service of type 'gcp': {purpose} needs key_ring, and there is none; allowed: key_ring: "
                "projects/…/locations/…/keyRings/…, or a key's whole resource name as its key id"
            )
        return self.key_ring

    def is_own(self, key_id: str) -> bool:
        """Return whether a key id is a resource name, so that it has no encoded name."""
        return _OWN_NAME.fullmatch(key_id) is not None

    def key_id(self, name: str) -> str | None:
        """Return the key id that a key of the ring stands for by its resource name, or None if it stands for none."""
        found = _NAMES.decode(name.rpartition("/")[2])
        return found if found is not None and not self.is_own(found) else None


@dataclass(slots=True)
class _Found:
    """A credential, and a digest of its source at that time."""

    source: bytes
    credential: Any = field(repr=False)


class GcpCredentials:
    """A source of access tokens, which renews them in time; safe for many threads.

    Args:
        options: the credential's source, and the timeout of one try.
        session: the HTTP session that gets tokens.
    """

    def __init__(self, options: GcpOptions, session: requests.Session) -> None:
        self._options = options
        self._request = partial(Request(session), timeout=options.timeout_seconds)  # its own default is two minutes
        self._lock = threading.Lock()
        self._found: _Found | None = None

    def __repr__(self) -> str:
        return f"GcpCredentials({self._options.method!r})"

    def sign(self, method: str, url: str, *, renew: bool = False) -> dict[str, str]:
        """Return the headers that authorise a request.

        Args:
            method: the request's method.
            url: the request's URL.
            renew: get a new token, since the cached one was refused.

        Raises:
            ConfigError: there is no credential, or it is invalid.
            KeyAccessDeniedError: Google gives no token for it.
            KeyServiceUnavailableError: the token endpoint does not answer.
        """
        headers: dict[str, str] = {}
        with self._lock:
            try:
                credential = self._load().credential
                if renew:
                    credential.refresh(self._request)
                credential.before_request(self._request, method, url, headers)
            except GoogleAuthError as error:
                raise _translate(error, self._options) from error
        return headers

    def identity(self) -> bytes:
        """Return a digest of the credential's source.

        Raises:
            ConfigError: there is no credential.
        """
        with self._lock:
            return self._load().source

    def _load(self) -> _Found:
        if self._options.method == "metadata":
            if self._found is None:
                account = self._options.service_account or "default"
                source = hashlib.sha256(f"metadata\0{account}".encode()).digest()
                from google.auth import compute_engine

                credential = compute_engine.Credentials(service_account_email=account, scopes=[_SCOPE])
                self._found = _Found(source, credential)
            return self._found
        # The file is replaced when its key is, so it is read each time, and loaded again if it differs.
        path = credentials_path(self._options)
        content = _read(path)
        source = hashlib.sha256(content).digest()
        if self._found is None or self._found.source != source:
            self._found = _Found(source, _of_file(path, content))
        return self._found


def credentials_path(options: GcpOptions, environ: Mapping[str, str] = os.environ) -> str:
    """Return where the credential's file is: the policy's, the environment's, or gcloud's own.

    Raises:
        ConfigError: there is none.
    """
    named = options.credentials_file or environ.get(FILE_VARIABLE)
    if named:
        return named
    folder = environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    usual = Path(folder, "application_default_credentials.json").expanduser()
    if usual.exists():
        return str(usual)
    raise ConfigError(
        f"Google Cloud KMS needs a credential and there is none; set {FILE_VARIABLE} in the environment of this "
        "process, name a file by auth.credentials_file, log in with `gcloud auth application-default login`, or say "
        "auth: {method: metadata}, where this machine, pod or cluster has a service account of its own"
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the credential file {path!r} (auth.credentials_file or {FILE_VARIABLE}) cannot be read: {error.strerror}"
        ) from error


def _of_file(path: str, content: bytes) -> Any:
    """Return the credential in a file; errors do not quote its content."""
    where = f"the credential file {path!r} (auth.credentials_file or {FILE_VARIABLE})"
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    kind = document.get("type") if isinstance(document, dict) else None
    if kind not in _KINDS:
        raise ConfigError(f"{where} is no credential of Google; allowed: JSON whose type is {', '.join(_KINDS)}")
    if kind == "external_account" and _asks_metadata(document):
        raise ConfigError(
            f"{where} has its token from a metadata address, which is asked for auth: {{method: metadata}} alone; "
            "allowed: an external_account whose credential_source is a file, or a URL of another kind"
        )
    credential = None
    with suppress(GoogleAuthError, ValueError, KeyError, TypeError, AttributeError):  # they would quote the content
        credential = _make(kind, document)
    if credential is None:
        raise ConfigError(f"{where} is no whole credential of type {kind!r}; get it anew from Google")
    return credential


def _make(kind: str, document: dict[str, Any]) -> Any:
    if kind == "service_account":
        from google.oauth2 import service_account

        return service_account.Credentials.from_service_account_info(document, scopes=[_SCOPE])
    if kind == "authorized_user":
        from google.oauth2 import credentials

        return credentials.Credentials.from_authorized_user_info(document)
    if kind == "external_account":
        from google.auth import identity_pool

        return identity_pool.Credentials.from_info(document, scopes=[_SCOPE])
    from google.auth import impersonated_credentials

    return impersonated_credentials.Credentials.from_impersonated_service_account_info(document, scopes=[_SCOPE])


def _asks_metadata(document: dict[str, Any]) -> bool:
    source = json.dumps(document.get("credential_source")).lower()
    return '"environment_id"' in source or any(host in source for host in _METADATA_HOSTS)


def _translate(error: GoogleAuthError, options: GcpOptions) -> SparkcryptError:
    what = f"Google Cloud KMS at {options.endpoint}: no access token"
    if error.retryable or isinstance(error, TransportError) or isinstance(error.__cause__, TransportError):
        return KeyServiceUnavailableError(
            f"{what}: what gives tokens does not answer ({type(error).__name__}); check the network and, for auth: "
            "{method: metadata}, that this machine has a service account"
        )
    reason = shorten_reason(error.args[0] if error.args else "")
    return KeyAccessDeniedError(
        f"{what}: {type(error).__name__}: {reason}; the credential is revoked, expired or of another project, or this "
        "machine's clock is wrong: give another one, or set the clock"
    )


def _translate_refusal(http: int, answer: dict[str, Any], where: str) -> KeyServiceError:
    error = answer.get("error")
    fields = error if isinstance(error, dict) else {}
    status, reason = str(fields.get("status", "")), shorten_reason(fields.get("message", ""))
    if http in {408, 429} or http >= 500 or status in _PASSING:
        return KeyServiceUnavailableError(f"{where}: it cannot serve now ({status or f'HTTP {http}'})")
    if http in {401, 403}:
        return KeyAccessDeniedError(
            f"{where}: {status or f'HTTP {http}'}: {reason}; allow it to this credential by IAM: cloudkms."
            "cryptoKeyVersions.useToEncrypt, .useToDecrypt and cloudkms.cryptoKeys.get on the key or its ring"
        )
    if not status:
        return KeyServiceUnavailableError(
            f"{where}: what answers there is no Google Cloud KMS (HTTP {http}); check endpoint"
        )
    if status == "NOT_FOUND":
        return KeyNotFoundError(f"{where}: it is not there ({reason}); check key_ring, {ABSENT_ADVICE}")
    return _translate_state(reason, where) or _translate_argument(status, reason, where)


def _translate_state(reason: str, where: str) -> KeyServiceError | None:
    """Return the error for a version in another state than ENABLED, or None if the reason names no state."""
    found = _STATE.search(reason)
    if found is None:
        return None
    state = found[1]
    if state in _GONE:
        return KeyNotFoundError(
            f"{where}: the version is destroyed, or is to be ({state}): {reason}; restore it in Google Cloud while "
            "that can be done"
        )
    if state in _WAITING:
        return KeyServiceUnavailableError(f"{where}: the version cannot serve now ({state})")
    return KeyAccessDeniedError(f"{where}: {state}: {reason}; enable the version in Google Cloud")


def _translate_argument(status: str, reason: str, where: str) -> KeyServiceError:
    if "crc32c" in reason.lower() or "checksum" in reason.lower():
        return KeyServiceUnavailableError(f"{where}: the request was damaged on its way ({reason})")
    if reason.startswith("Decryption failed"):
        return KeyServiceError(
            f"{where}: the wrapped key is not one that this key wrapped under this key id ({status}: {reason})"
        )
    return KeyServiceError(f"{where}: {status}: {reason}")


class GcpKeyService(ProviderKeyService):
    """A key service that wraps by ``encrypt``, with the key id as additional authenticated data; safe for many threads.

    Options: ``key_ring``, ``endpoint`` (Google's) or ``endpoints``, ``auth`` (``{method: file}`` or
        ``{method: metadata}``), ``protection_level`` of new keys (``SOFTWARE``), ``ca_bundle``, ``timeout_seconds``
        (10, per try), ``max_retries`` (5).

    Raises:
        ConfigError: an option is not right.
    """

    product, form = "Google Cloud KMS", "gcp:v1:<base64>"
    own_names = "a resource name; make that key in Google Cloud"

    def __init__(self, config: KeyServiceConfig) -> None:
        self._options = read_options(GcpOptions, config)
        self._names = KeyNames(self._options.key_ring)
        # ca_bundle is for the endpoint only: the token endpoint has a certificate of a public CA.
        self._credentials = GcpCredentials(self._options, open_session(None))
        where = f"{self.product} at {self._options.endpoint}"
        self._rest = TokenRest(where, self._credentials.sign, self._options, "endpoint", _translate_refusal)

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
        answer = self._ask("POST", f"{name}:encrypt", f"wrap with key {key_id!r}", body)
        if answer.get("verifiedPlaintextCrc32c") is not True or (
            answer.get("verifiedAdditionalAuthenticatedDataCrc32c") is not True
        ):
            raise self._damage_error(key_id, "it did not check what it was sent")
        version = str(answer.get("name", "")).rpartition("/cryptoKeyVersions/")[0]
        # The answer may name a project by id where the request had its number.
        if version.partition("/locations/")[2] != name.partition("/locations/")[2]:
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
            raise self._make_form_error(key_id)
        body = {**_field("ciphertext", blob), **_field("additionalAuthenticatedData", aad)}
        answer = self._ask("POST", f"{name}:decrypt", f"unwrap with key {key_id!r}", body)
        return self._take_whole(answer, "plaintext", key_id)

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key by its primary version; if that is destroyed, or will be, the key counts as missing."""
        answer = self._ask("GET", self._names.of(key_id), f"read key {key_id!r}")
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

    def _make(self, key_id: str) -> None:
        """Create a symmetric key in the key ring; Google keeps the name of one that was destroyed."""
        body = {
            "purpose": _PURPOSE,
            "versionTemplate": {
                "algorithm": "GOOGLE_SYMMETRIC_ENCRYPTION",
                "protectionLevel": self._options.protection_level,
            },
        }
        ring, _, name = self._names.of(key_id).rpartition("/cryptoKeys/")
        try:
            self._ask("POST", f"{ring}/cryptoKeys", f"create key {key_id!r}", body, {"cryptoKeyId": name})
        except KeyServiceError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise

    def _is_own(self, key_id: str) -> bool:
        return self._names.is_own(key_id)

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version and make it the primary one, which wraps from now on; earlier versions still unwrap."""
        name, what = self._names.of(key_id), f"rotate key {key_id!r}"
        made = self._ask("POST", f"{name}/cryptoKeyVersions", what, {})
        body = {"cryptoKeyVersionId": str(made.get("name", "")).rpartition("/")[2]}
        self._ask("POST", f"{name}:updatePrimaryVersion", what, body)
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
            answer = self._ask("GET", f"{self._names.ring()}/cryptoKeys", "list keys", None, parameters)
            for key in answer.get("cryptoKeys", ()):
                key_id = self._names.key_id(str(key.get("name", "")))
                if key_id is not None and key.get("purpose") == _PURPOSE and not _is_gone(key):
                    found[key_id] = _describe(key_id, key)
            page = str(answer.get("nextPageToken") or "")
            if not page:
                return tuple(found[key_id] for key_id in sorted(found))

    def credential_identity(self) -> bytes:
        """Return a digest of the credential's file, or of the service account's name."""
        return self._credentials.identity()

    def _ask(
        self, method: str, path: str, what: str, body: Body = None, parameters: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        return self._rest.ask(method, f"{self._options.endpoint}/v1/{path}", what, body, parameters)

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
