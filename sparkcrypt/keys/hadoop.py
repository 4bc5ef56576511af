"""The key service over Hadoop KMS, which wraps no given key: it makes a key of its own, and that key wraps.

To wrap, the KMS makes an encrypted key (EEK) and opens it; the opened key is used once, in this process, to seal the
given key.  A wrapped text contains the EEK and the sealed key.  To unwrap, the KMS opens the EEK.  An EEK is not
authenticated (AES-CTR); the seal is, and binds the key id and the EEK.

Delegation tokens are read from the binary credentials file that YARN gives to each container.  Source: Hadoop,
``Credentials.readTokenStorageStream``, ``Token.write`` and ``WritableUtils.readVLong``, format 0.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
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
from sparkcrypt.keys.rest import open_session
from sparkcrypt.keys.service import ABSENT_ADVICE, KeyDeletion, KeyDescription, read_wrapped
from sparkcrypt.keys.wrapping import seal_key, unseal_key
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.text import utc_text

TOKENS_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
KMS_KIND = b"kms-dt"
_MAGIC = b"HDTS"
_WRITABLE = 0
_ADDRESS = "https://host:9600/kms"
AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "kerberos": ("method",),
    "simple": ("method", "user"),
    "token": ("method", "token_file"),
}
NAMES = NameRule("a-z0-9-", "_", 200, "Hadoop KMS")
"""Java's key stores ignore case in names, so capital letters are escaped."""
_DELEGATION = "X-Hadoop-Delegation-Token"
_DENYING = {"AuthorizationException", "AccessControlException", "AuthenticationException", "InvalidToken"}
_PASSING = {429, 502, 503, 504}
_PREFIX = "hadoop:v1:"
_HEAD = struct.Struct(">I16sB")
_AES_BYTES = (16, 24, 32)
_CIPHER = "AES/CTR/NoPadding"


@dataclass(frozen=True, slots=True)
class _Token:
    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    kind: bytes
    service: bytes

    def url_string(self) -> str:
        """Return the token as ``Token.encodeToUrlString`` writes it, which HTTP headers carry."""
        parts = (self.identifier, self.password, self.kind, self.service)
        whole = b"".join(_written_length(len(part)) + part for part in parts)
        return base64.urlsafe_b64encode(whole).decode().rstrip("=")


def read_kms_token(path: str, address: str) -> str:
    """Return the delegation token for a KMS in a credentials file.

    Args:
        path: the file.
        address: the KMS's address; of several tokens, the one whose service contains its host is taken.

    Raises:
        ConfigError: the file cannot be read, is of another format, or contains no token for this KMS.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the credentials file {path!r} (auth.token_file or {TOKENS_VARIABLE}) cannot be read: {error.strerror}"
        ) from error
    tokens = [token for token in _tokens(content, path) if token.kind == KMS_KIND]
    host = (urlsplit(address).hostname or "").encode()
    chosen = next((token for token in tokens if host in token.service), tokens[0] if len(tokens) == 1 else None)
    if chosen is None:
        raise ConfigError(
            f"the credentials file {path!r} holds {len(tokens)} delegation tokens of kind kms-dt and none for "
            f"{host.decode()}; get one by `hadoop dtutil get kms://… {path}`"
        )
    return chosen.url_string()


def _tokens(content: bytes, path: str) -> list[_Token]:
    if content[:4] != _MAGIC or content[4:5] != bytes([_WRITABLE]):
        raise ConfigError(
            f"{path!r} is no credentials file of Hadoop in its format 'java'; write one by `hadoop dtutil get "
            "-format java …`"
        )
    reader = _Reader(content[5:])
    try:
        found = []
        for _ in range(reader.number()):
            reader.part()  # the alias
            found.append(_Token(reader.part(), reader.part(), reader.part(), reader.part()))
        return found
    except IndexError:
        raise ConfigError(f"the credentials file {path!r} is cut; write it again") from None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self) -> int:
        first = self._take(1)[0]
        if first < 0x80:
            return first
        signed = first - 256
        if signed >= -112:
            return signed
        return int.from_bytes(self._take(-112 - signed if signed >= -120 else -120 - signed), "big")

    def part(self) -> bytes:
        return self._take(max(0, self.number()))

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._content):
            raise IndexError
        self._at += count
        return self._content[self._at - count : self._at]


def _written_length(length: int) -> bytes:
    if length < 0x80:
        return bytes([length])
    raw = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(raw)]) + raw


@dataclass(frozen=True, slots=True)
class HadoopOptions(NetworkOptions):
    """The checked options."""

    address: str = address(
        _ADDRESS, missing=f"allowed: {_ADDRESS}, as hadoop.security.key.provider.path has it behind kms://"
    )
    method: str = login(AUTH_OPTIONS)
    user: str | None = login(AUTH_OPTIONS, "user")
    token_file: str | None = login(AUTH_OPTIONS, "token_file")
    name_prefix: str | None = text(pattern="[a-z0-9_-]{0,50}", allowed="up to 50 of a-z, 0-9, '_' and '-'")
    key_bits: int = choice(128, 192, 256, default=256)


@dataclass(frozen=True, slots=True)
class HadoopCredential:
    """A credential for Hadoop KMS: a user's name (simple), a delegation token, or the location of a Kerberos ticket."""

    method: str
    secret: str = field(repr=False)


def read_credential(options: HadoopOptions, environ: Mapping[str, str] = os.environ) -> HadoopCredential:
    """Return the current credential; a token's file is read each time, since renewal replaces it.

    Raises:
        ConfigError: the method is ``token``, and there is no token for a KMS.
    """
    if options.method == "simple":
        return HadoopCredential("simple", options.user or environ.get("HADOOP_USER_NAME") or getpass.getuser())
    if options.method == "token":
        path = options.token_file or environ.get(TOKENS_VARIABLE)
        if not path:
            raise ConfigError(
                f"Hadoop KMS needs a delegation token and there is none; name a credentials file by auth.token_file, "
                f"or launch where {TOKENS_VARIABLE} names one, as YARN does for its containers"
            )
        return HadoopCredential("token", read_kms_token(path, options.address))
    return HadoopCredential("kerberos", environ.get("KRB5CCNAME", ""))


class KmsHttp:
    """A client that sends requests with the current credential; safe for many threads.

    Args:
        options: the address and the credential.
    """

    def __init__(self, options: HadoopOptions) -> None:
        self._options = options
        self._session = open_session(options.ca_bundle)

    def ask(
        self, method: str, path: str, what: str, *, body: Any = None, parameters: Mapping[str, str] | None = None
    ) -> Any:
        """Send a request, and return the JSON of its answer; None for an empty answer.

        Args:
            method: the HTTP method.
            path: the path below ``/v1/``, encoded.
            what: what is asked, for messages.
            body: sent as JSON.
            parameters: query parameters.

        Raises:
            ConfigError: there is no credential.
            KeyServiceError: the KMS refused, or did not answer.
        """
        credential = read_credential(self._options)
        query, headers = dict(parameters or {}), {"X-Requested-By": "sparkcrypt"}
        if credential.method == "simple":
            query["user.name"] = credential.secret
        elif credential.method == "token":
            headers[_DELEGATION] = credential.secret
        where = f"Hadoop KMS at {self._options.address}: cannot {what}"
        try:
            answer = self._session.request(
                method,
                f"{self._options.address}/v1/{path}",
                params=query,
                json=body,
                headers=headers,
                auth=_negotiation() if credential.method == "kerberos" else None,
                timeout=self._options.timeout_seconds,
                allow_redirects=False,  # it would carry the credential to another host
            )
        except requests.RequestException as error:
            raise KeyServiceUnavailableError(
                f"{where}: no answer ({type(error).__name__}); check the address, ca_bundle, and that it runs"
            ) from error
        # A cookie of one credential must not authenticate the next.
        self._session.cookies.clear()
        return _content(answer, where, credential)


def _content(answer: requests.Response, where: str, credential: HadoopCredential) -> Any:
    if answer.status_code in {200, 201}:
        return _json(answer, where) if answer.content else None
    refusal = _exception(answer)
    whole = " ".join(str(refusal.get("message", "")).split())
    if credential.method == "token":
        whole = whole.replace(credential.secret, "[redacted]")
    reason = shorten_reason(whole) or f"HTTP {answer.status_code}"
    name = str(refusal.get("exception", ""))
    if answer.status_code in {401, 403} or name in _DENYING:
        raise KeyAccessDeniedError(
            f"{where}: {reason}; the {credential.method} credential of this process may not (kms-acls.xml), or has "
            "expired"
        )
    if "not found" in reason or "No KeyVersion exists" in reason or "does not exist" in reason:
        raise KeyNotFoundError(f"{where}: it is not there; {ABSENT_ADVICE}")
    if answer.status_code in _PASSING or (answer.status_code >= 500 and not name):
        raise KeyServiceUnavailableError(f"{where}: it cannot serve now (HTTP {answer.status_code})")
    if 300 <= answer.status_code < 400:
        raise KeyServiceUnavailableError(f"{where}: it redirects, which is not followed; name the KMS itself")
    raise KeyServiceError(f"{where}: {name or 'refused'}: {reason}")


def _json(answer: requests.Response, where: str) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise KeyServiceUnavailableError(
            f"{where}: what answers there is no Hadoop KMS; check the address, which ends with /kms"
        ) from None


def _exception(answer: requests.Response) -> Mapping[str, Any]:
    try:
        exception = answer.json()["RemoteException"]
    except (ValueError, KeyError, TypeError):
        return {}
    return exception if isinstance(exception, dict) else {}


def _negotiation() -> Any:
    """Return the authentication that answers ``Negotiate`` with the Kerberos ticket of this process."""
    try:
        from requests_kerberos import DISABLED, HTTPKerberosAuth
    except ImportError as error:
        raise ConfigError(
            "Hadoop KMS by Kerberos needs requests-kerberos, which this interpreter does not have; install "
            "sparkcrypt[hadoop] and get a ticket (kinit), or use auth: {method: token}"
        ) from error
    return HTTPKerberosAuth(mutual_authentication=DISABLED)


@dataclass(frozen=True, slots=True)
class _Eek:
    """An encrypted key: the master key's version, the initialization vector, and the encrypted bytes."""

    version: int
    iv: bytes
    material: bytes

    def to_bytes(self) -> bytes:
        return _HEAD.pack(self.version, self.iv, len(self.material)) + self.material


class HadoopKeyService(ProviderKeyService):
    """A key service that wraps as ``hadoop:v1:<base64 of EEK and sealed key>``; safe for many threads.

    A wrap costs two calls (an EEK is made, and opened), an unwrap one.

    Options: ``address`` (``https://host:9600/kms``) or ``addresses``, ``auth`` (``{method: kerberos}``,
        ``{method: token, token_file: …}`` or ``{method: simple, user: …}``), ``name_prefix`` (none),
        ``key_bits`` of new keys (256), ``ca_bundle``, ``timeout_seconds`` (10, per try), ``max_retries`` (5).

    Raises:
        ConfigError: an option is not right.
    """

    product, form = "Hadoop KMS", "hadoop:v1:<base64>"

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
            raise self._make_form_error(key_id)
        eek, sealed = parts
        opened = self._open(key_id, eek, "unwrap with")
        try:
            return unseal_key(opened, base64.b64encode(sealed).decode(), _aad(key_id, eek.to_bytes()))
        except ValueError as error:
            raise KeyServiceError(
                f"key {key_id!r}: the wrapped key is {error}; use the KMS and the key id that it was wrapped with"
            ) from error

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key."""
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

    def _make(self, key_id: str) -> None:
        length = self._options.key_bits
        body = {"name": self._name(key_id), "cipher": _CIPHER, "length": length, "description": key_id}
        try:
            self._http.ask("POST", "keys", f"create key {key_id!r}", body=body)
        except KeyServiceError as error:
            if "already exists" not in str(error):
                raise

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on; earlier versions still unwrap."""
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
        own = (str(name).removeprefix(self._prefix) for name in names if str(name).startswith(self._prefix))
        return self._describe_all(map(NAMES.decode, own))

    def credential_identity(self) -> bytes:
        """Return a digest of the user's name, the token, or the location of the ticket."""
        credential = read_credential(self._options)
        return hashlib.sha256(f"{credential.method}\0{credential.secret}".encode()).digest()

    def _name(self, key_id: str) -> str:
        return self._prefix + NAMES.encode(key_id)

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
