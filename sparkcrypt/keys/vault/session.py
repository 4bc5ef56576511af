"""A client of Vault with a token: options, credentials, logins by hvac, and when the token is renewed or replaced."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest, RateLimitExceeded, Unauthorized, VaultError
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ReadTimeoutError
from urllib3.util.retry import Retry

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.ids import check_key_id
from sparkcrypt.keys.provider import (
    NetworkOptions,
    OptionSource,
    address,
    certificates,
    number,
    option,
    read_login,
    shorten_reason,
    text,
)
from sparkcrypt.keys.service import ABSENT_ADVICE
from sparkcrypt.policy.key_service import MAX_RETRIES

AUTH_OPTIONS: dict[str, tuple[str, ...]] = {
    "token": ("method", "token_file"),
    "approle": ("method", "mount_point", "role_id_file", "secret_id_file"),
    "kubernetes": ("method", "mount_point", "role", "jwt_path"),
}
KUBERNETES_JWT = "/var/run/secrets/kubernetes.io/serviceaccount/token"
MAX_NAME_CHARACTERS = 1024
_LITERAL = re.compile(r"[A-Za-z0-9]|(?<=[A-Za-z0-9])[.-](?=[A-Za-z0-9])", re.ASCII)
_VISIBLE = re.compile(r"[!-~]+")
_NAME = re.compile(rb"_([0-9a-f]{2})|([A-Za-z0-9.-])")
RETRIED_STATUSES = (429, 500, 502, 503, 504)
BACKOFF_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 5.0
CONNECTIONS = 32
_chance = secrets.SystemRandom()
_TOO_OLD = "disallowed by policy (too old)"
"""Of a text that a version below ``min_decryption_version`` wrapped (keysutil's ErrTooOld)."""
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class VaultAuth:
    """How to get a token: the method, where it is mounted, and the files and role that it needs."""

    method: str
    mount_point: str
    role: str | None = None
    files: tuple[tuple[str, str], ...] = ()

    def file(self, name: str) -> str | None:
        """Return the path that an option names."""
        return dict(self.files).get(name)


def _read_namespace(source: OptionSource, name: str) -> str | None:
    value = source.text(name, variable="VAULT_NAMESPACE")
    if value and not _VISIBLE.fullmatch(value):
        raise source.error(
            f"{name} (or VAULT_NAMESPACE)",
            f"is {value!r}, which no HTTP header carries; allowed: ASCII without spaces and control characters",
        )
    return value or None


def _read_auth(source: OptionSource, _name: str) -> VaultAuth:
    texts = read_login(source, AUTH_OPTIONS)
    method = texts["method"]
    if method == "kubernetes" and not texts.get("role"):
        raise source.error("auth:", "role is missing; allowed: the name of the role that this service account may take")
    files = tuple((name, path) for name, path in sorted(texts.items()) if name.endswith(("_file", "_path")))
    return VaultAuth(method, (texts.get("mount_point") or method).strip("/"), texts.get("role"), files)


@dataclass(frozen=True, slots=True)
class VaultOptions(NetworkOptions):
    """The checked options."""

    address: str = address(missing="set it, or VAULT_ADDR, to https://host:port", variable="VAULT_ADDR")
    mount_point: str = text("transit", stripped="/", pattern=r"[\s\S]+", allowed="the path of a transit mount")
    namespace: str | None = option(_read_namespace)
    auth: VaultAuth = option(_read_auth)
    ca_bundle: str | None = certificates("VAULT_CACERT")
    max_retries: int = number(3, 0, MAX_RETRIES)


@dataclass(frozen=True, slots=True)
class VaultCredential:
    """A credential for Vault: a token, or the secrets that a login sends."""

    method: str
    secrets: tuple[str, ...] = field(repr=False)


def read_credential(auth: VaultAuth, environ: Mapping[str, str] = os.environ) -> VaultCredential:
    """Read the credential from the files that the options name or from the environment; a file takes precedence.

    Raises:
        ConfigError: there is none; the message names the places.
    """
    if auth.method == "token":
        return VaultCredential("token", (_token(auth, environ),))
    if auth.method == "approle":
        return VaultCredential(
            "approle",
            (
                _secret(auth, "role_id_file", "VAULT_ROLE_ID", environ),
                _secret(auth, "secret_id_file", "VAULT_SECRET_ID", environ),
            ),
        )
    return VaultCredential("kubernetes", (auth.role or "", _read(auth.file("jwt_path") or KUBERNETES_JWT, "jwt_path")))


def encode_key_name(key_id: str) -> str:
    r"""Return the transit key name of a key id; different key ids have different names.

    Transit accepts ``\w([\w.-]*\w)?``, and its storage refuses ``..``.  ASCII letters and digits stay, and so do ``-``
    and ``.`` between two of them; every other UTF-8 byte, ``_`` included, becomes ``_`` and two hex digits.

    Raises:
        ConfigError: the key id is empty, is not Unicode, or its name is longer than 1,024 characters.
    """
    check_key_id(key_id)
    literal = {match.start() for match in _LITERAL.finditer(key_id)}
    name = "".join(
        character if index in literal else "".join(f"_{byte:02x}" for byte in character.encode())
        for index, character in enumerate(key_id)
    )
    if len(name) > MAX_NAME_CHARACTERS:
        raise ConfigError(
            f"key id {key_id[:40]!r}… has a Vault key name of {len(name)} characters; allowed: {MAX_NAME_CHARACTERS}"
        )
    return name


def decode_key_name(name: str) -> str | None:
    """Return the key id of a transit key name, None for a name that no key id has."""
    data, end = bytearray(), 0
    for match in _NAME.finditer(name.encode("utf-8", "replace")):
        if match.start() != end:
            return None
        data += bytes.fromhex(match[1].decode()) if match[1] else match[2]
        end = match.end()
    try:
        key_id = data.decode()
        return key_id if encode_key_name(key_id) == name else None
    except (UnicodeDecodeError, ConfigError):
        return None


def _token(auth: VaultAuth, environ: Mapping[str, str]) -> str:
    named = auth.file("token_file")
    if named is not None:
        return _header_token(_read(named, "token_file"), f"the credential file {named!r} (auth.token_file)")
    if environ.get("VAULT_TOKEN"):
        return _header_token(environ["VAULT_TOKEN"].strip(), "VAULT_TOKEN")
    default = Path("~/.vault-token").expanduser()
    if default.exists():
        return _header_token(_read(str(default), "token_file"), f"the credential file '{default}'")
    raise ConfigError(
        "Vault needs a token and there is none; set VAULT_TOKEN in the environment of this process, name a file by "
        "auth.token_file, or log in with `vault login`, which writes ~/.vault-token"
    )


def _header_token(token: str, where: str) -> str:
    """Return a token that a header can carry; for another one, the HTTP library would quote it in its error."""
    if not _VISIBLE.fullmatch(token):
        raise ConfigError(
            f"{where} is no token: it is empty, or holds white space or what is not ASCII; write the token alone there"
        )
    return token


def _secret(auth: VaultAuth, option: str, variable: str, environ: Mapping[str, str]) -> str:
    named = auth.file(option)
    if named is not None:
        return _read(named, option)
    if not environ.get(variable):
        raise ConfigError(
            f"Vault AppRole needs {variable} and there is none; set it in the environment of this process, or name a "
            f"file by auth.{option}"
        )
    return environ[variable].strip()


def _read(path: str, option: str) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the credential file {path!r} (auth.{option}) cannot be read: {error.strerror}; mend it or its mode"
        ) from error
    # A decoding error would contain the content, so bytes that are not text are found without one.
    text = content.decode("ascii", "replace").strip()
    if not text or not text.isascii():
        what = "is not ASCII text" if text else "is empty"
        raise ConfigError(f"the credential file {path!r} (auth.{option}) {what}; write the credential into it")
    return text


def vault_http(ca_bundle: str | None, max_retries: int) -> requests.Session:
    """Return an HTTP session that retries with jitter on connection errors, 429 and 5xx, and on nothing else.

    Args:
        ca_bundle: certificates to trust, in PEM; the system's when None.
        max_retries: tries after the first.
    """
    session = requests.Session()
    session.auth = lambda request: request  # else a password of ~/.netrc for Vault's host would be sent
    session.verify = ca_bundle or True
    adapter = HTTPAdapter(pool_maxsize=CONNECTIONS, max_retries=_retries(max_retries))
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def certificate_fault(error: requests.exceptions.SSLError) -> str | None:
    """Return why a server's certificate was not accepted, in OpenSSL's words; None if TLS failed otherwise."""
    reason = getattr(next(iter(error.args), None), "reason", None)
    cause = next(iter(getattr(reason, "args", ())), None)
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else None


class _JitteredRetry(Retry):
    """Retries with a random wait before the first one too, which urllib3 makes at once: executors start together."""

    def get_backoff_time(self) -> float:
        return super().get_backoff_time() or _chance.uniform(0.0, self.backoff_jitter)


def _retries(count: int) -> Retry:
    return _JitteredRetry(
        total=count,
        # None means every method: a repeated request does no harm, though a repeated rotation adds a version.
        allowed_methods=None,
        status_forcelist=RETRIED_STATUSES,
        raise_on_status=False,
        redirect=False,
        backoff_factor=BACKOFF_SECONDS,
        backoff_max=BACKOFF_MAX_SECONDS,
        backoff_jitter=BACKOFF_SECONDS,
        # A Retry-After header of the server could otherwise block a writer for hours.
        respect_retry_after_header=False,
    )


def translate_refusal(
    error: VaultError, options: VaultOptions, key_id: str, doing: str, secrets: Iterable[str]
) -> KeyServiceError:
    """Return the error of this package for a refusal.

    Args:
        error: the error that hvac raised.
        options: options of the key service, for the message.
        key_id: the key that was used; ``*`` for all.
        doing: the operation, for the message.
        secrets: texts that the message must not contain.
    """
    what = f"Vault at {options.address}, mount {options.mount_point!r}: cannot {doing} key {key_id!r}"
    if isinstance(error, Forbidden | Unauthorized):
        return KeyAccessDeniedError(
            f"{what}: permission denied to the {options.auth.method} credential of this process; it "
            "lacks a policy for this path, or has expired"
        )
    reason = quote_refusal(error, secrets)
    if isinstance(error, InvalidPath) or "key not found" in reason:
        name = "" if key_id == "*" else f" under the name {encode_key_name(key_id)!r}"
        return KeyNotFoundError(f"{what}: it is not there{name}; check mount_point and namespace, {ABSENT_ADVICE}")
    if isinstance(error, InvalidRequest):
        return (KeyRetiredError if _TOO_OLD in reason else KeyServiceError)(f"{what}: {reason}")
    if isinstance(error, RateLimitExceeded):
        return KeyServiceUnavailableError(f"{what}: too many requests, also after {options.max_retries} retries")
    return KeyServiceUnavailableError(
        f"{what}: it cannot serve now ({type(error).__name__}), also after {options.max_retries} retries; "
        "is it sealed or starting?"
    )


def translate_silence(error: OSError, options: VaultOptions) -> KeyServiceError:
    """Return the error of this package for a call that Vault did not answer.

    Args:
        error: the error that requests, or reading the certificates, raised.
        options: options of the key service, for the message.
    """
    what = f"Vault at {options.address}"
    if not isinstance(error, requests.RequestException):
        return KeyServiceUnavailableError(
            f"{what}: the certificates of ca_bundle or VAULT_CACERT, {options.ca_bundle!r}, cannot be read; "
            "are they still on this machine?"
        )
    if isinstance(error, requests.exceptions.SSLError):
        return KeyServiceUnavailableError(f"{what}: {_tls_refusal(error)}")
    reason = getattr(next(iter(error.args), None), "reason", None)
    # Of a last retry that timed out, requests tells as of a connection error.
    if isinstance(error, requests.Timeout) or isinstance(reason, ReadTimeoutError):
        return KeyServiceUnavailableError(
            f"{what} did not answer within {options.timeout_seconds:g} s, {options.max_retries + 1} times"
        )
    return KeyServiceUnavailableError(
        f"{what} cannot be reached ({type(error).__name__}); check the address and that it runs"
    )


def quote_refusal(error: Exception, secrets: Iterable[str]) -> str:
    """Return the reason in the JSON of Vault's refusal, shortened and without this process's secrets.

    Args:
        error: the error that hvac raised.
        secrets: texts that are not quoted.
    """
    words = " ".join(", ".join(map(str, getattr(error, "errors", None) or ())).split())
    for secret in filter(None, secrets):
        words = words.replace(secret, "[redacted]")
    return shorten_reason(words) or "no reason given"


def _tls_refusal(error: requests.exceptions.SSLError) -> str:
    fault = certificate_fault(error)
    if fault is None:
        return (
            "no TLS connection was made; check that the address speaks TLS, and that ca_bundle or VAULT_CACERT, where "
            "one is given, holds certificates in PEM"
        )
    return (
        f"its certificate was not accepted ({fault}); name its CA by ca_bundle or VAULT_CACERT, and use an address "
        "that is in the certificate"
    )


class HvacLogin:
    """Logs in to Vault by hvac, renews tokens and looks them up.

    Args:
        options: the address, and how to log in.
    """

    def __init__(self, options: VaultOptions) -> None:
        self._options = options

    def log_in(self, credential: VaultCredential) -> tuple[Any, float]:
        """Return a client with a token, and the token's lifetime in seconds; 0 if it needs no renewal.

        Raises:
            KeyAccessDeniedError: Vault refused the login.
        """
        # A redirect would carry the token to another host.
        client = hvac.Client(
            url=self._options.address,
            token=credential.secrets[0] if credential.method == "token" else "",
            namespace=self._options.namespace,
            timeout=self._options.timeout_seconds,
            session=vault_http(self._options.ca_bundle, self._options.max_retries),
            allow_redirects=False,
        )
        return client, self._lifetime(client) if credential.method == "token" else self._exchange(client, credential)

    def renew(self, client: Any) -> float | None:
        """Renew a client's token; return its lifetime now in seconds, or None if it was not renewed."""
        try:
            return float(client.auth.token.renew_self()["auth"]["lease_duration"])
        except (VaultError, requests.RequestException, KeyError, TypeError):
            return None

    def is_alive(self, client: Any) -> bool:
        """Return whether Vault still accepts a client's token."""
        try:
            client.auth.token.lookup_self()
        except (Forbidden, Unauthorized):
            return False
        return True

    def _exchange(self, client: Any, credential: VaultCredential) -> float:
        mount = self._options.auth.mount_point
        first, second = credential.secrets
        try:
            if credential.method == "approle":
                answer = client.auth.approle.login(first, second, mount_point=mount)
            else:
                answer = client.auth.kubernetes.login(role=first, jwt=second, mount_point=mount)
            return float(answer["auth"]["lease_duration"])
        except (Forbidden, Unauthorized, InvalidRequest, InvalidPath, KeyError, TypeError) as error:
            reason = quote_refusal(error, credential.secrets)
            raise KeyAccessDeniedError(
                f"Vault at {self._options.address} refused the {credential.method} login at auth/{mount} ({reason}); "
                "check the credential, the role and that the method is there"
            ) from error

    def _lifetime(self, client: Any) -> float:
        """Return a given token's lifetime in seconds; 0 if it does not expire, or cannot be renewed or looked up."""
        try:
            data = client.auth.token.lookup_self()["data"]
            return float(data["ttl"]) if data["renewable"] else 0.0
        except (VaultError, KeyError, TypeError):
            return 0.0


class VaultSession:
    """A client whose token is renewed when less than a third of its life remains, and replaced when it is invalid.

    Safe for many threads: while one thread renews the token, the others use the old one.

    Args:
        auth: the method, and where the credential is read.
        login: logs in, renews and looks up tokens.
    """

    def __init__(self, auth: VaultAuth, login: HvacLogin) -> None:
        self._auth = auth
        self._login = login
        self._lock = threading.Lock()
        self._client: Any = None
        self._credential: VaultCredential | None = None
        self._renew_at = _NEVER

    def __repr__(self) -> str:
        return f"VaultSession(method={self._auth.method!r})"

    def client(self) -> Any:
        """Return the client, logging in or renewing its token first if that is due."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._log_in()
        elif time.monotonic() >= self._renew_at and self._lock.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._lock.release()
        return self._client

    def after_refusal(self, refused: Any) -> Any:
        """Return a client with another token if the refused one is no longer valid, None if the refusal stands.

        A plain token is read again, since an agent may have written a new one; the other methods log in again.
        """
        with self._lock:
            if self._client is not refused:
                return self._client  # another thread was here first
            if self._auth.method == "token":
                is_dead = read_credential(self._auth) != self._credential
            else:
                is_dead = not self._login.is_alive(refused)
            if not is_dead:
                return None
            self._log_in()
            return self._client

    def credential_identity(self) -> bytes:
        """Return a digest of the credential that a login would use now."""
        credential = read_credential(self._auth)
        # A service account's JWT is replaced every hour, so the role identifies the credential.
        shown = credential.secrets[:1] if credential.method == "kubernetes" else credential.secrets
        return hashlib.sha256("\0".join((credential.method, *shown)).encode()).digest()

    @property
    def logged_in(self) -> bool:
        """Whether there is a client with a token."""
        return self._client is not None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that no message may contain: the credential and the token in use."""
        known = self._credential.secrets if self._credential is not None else ()
        return (*known, str(getattr(self._client, "token", None) or ""))

    def _log_in(self) -> None:
        credential = read_credential(self._auth)
        client, lifetime_seconds = self._login.log_in(credential)
        self._client, self._credential = client, credential
        self._schedule(lifetime_seconds)

    def _renew(self) -> None:
        lifetime_seconds = self._login.renew(self._client)
        if lifetime_seconds is not None:
            self._schedule(lifetime_seconds)
        elif self._auth.method == "token":
            self._renew_at = _NEVER  # it serves until Vault refuses it
        else:
            self._log_in()

    def _schedule(self, lifetime_seconds: float) -> None:
        self._renew_at = time.monotonic() + lifetime_seconds * 2 / 3 if lifetime_seconds > 0 else _NEVER
