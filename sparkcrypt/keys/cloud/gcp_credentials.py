"""Access tokens for Google Cloud by google-auth, only from the source that the options name.

If Google's own discovery (``google.auth.default``) finds nothing else, it asks the machine's metadata address; here
that address is asked only if the policy has ``auth: {method: metadata}``.
"""

from __future__ import annotations

import hashlib
import json
import os
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

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyServiceUnavailableError, SparkcryptError
from sparkcrypt.keys.cloud.gcp_options import GcpOptions

FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPE = "https://www.googleapis.com/auth/cloudkms"
_KINDS = ("service_account", "authorized_user", "external_account", "impersonated_service_account")
_METADATA_HOSTS = ("169.254.169.254", "metadata.google.internal", "fd00:ec2::254")
_REASON_CHARACTERS = 200


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
                self._found = _Found(source, _of_metadata(account))
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


def _of_metadata(account: str) -> Any:
    from google.auth import compute_engine

    return compute_engine.Credentials(service_account_email=account, scopes=[_SCOPE])


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
    reason = " ".join(str(error.args[0] if error.args else "").split())[:_REASON_CHARACTERS]
    return KeyAccessDeniedError(
        f"{what}: {type(error).__name__}: {reason}; the credential is revoked, expired or of another project, or this "
        "machine's clock is wrong: give another one, or set the clock"
    )
