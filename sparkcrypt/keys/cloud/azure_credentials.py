"""Access tokens for Azure Key Vault by azure-identity, only from the source that the options name.

If Azure's own chain (``DefaultAzureCredential``) finds nothing else, it asks the machine's metadata address and tools
of developers; here that address is asked only if the policy has ``auth: {method: managed}``.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.identity import (
    CredentialUnavailableError,
    EnvironmentCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyServiceUnavailableError, SparkcryptError, causes_of
from sparkcrypt.keys.cloud.azure_options import AzureOptions

_FILES = ("AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE")
_REASON_CHARACTERS = 200
_PASSING = re.compile(r"HTTP Error: (?:408|429|5[0-9][0-9])\b|temporarily_unavailable|server_error|AADSTS90033:")
"""Texts of msal, below azure-identity, for transient failures (RFC 6749, 4.1.2.1); it does not expose the answer."""
_NEEDS = {
    "environment": "set AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH in "
    "the environment of this process, or name another auth.method",
    "workload": "AZURE_TENANT_ID, AZURE_CLIENT_ID (or auth.client_id) and AZURE_FEDERATED_TOKEN_FILE must be set, as "
    "workload identity sets them in pods",
    "managed": "this machine, pod or cluster must have a managed identity; with several, name one by auth.client_id",
}


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
                raise _translate(error, self._options) from error

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


def _translate(error: Exception, options: AzureOptions) -> SparkcryptError:
    what = f"Azure Key Vault at {options.address}: no access token"
    if isinstance(error, CredentialUnavailableError | ValueError):
        return ConfigError(
            f"{what}: no credential is there for auth.method {options.method!r}: {_NEEDS[options.method]}"
        )
    if isinstance(error, ClientAuthenticationError) and not _is_passing(error):
        reason = " ".join(str(error.message).split())[:_REASON_CHARACTERS]
        return KeyAccessDeniedError(
            f"{what}: {reason}; the credential is revoked, expired or of another tenant, or this machine's clock is "
            "wrong: give another one, or set the clock"
        )
    return KeyServiceUnavailableError(
        f"{what}: what gives tokens does not answer ({type(error).__name__}); check the network and, where it is set, "
        "AZURE_AUTHORITY_HOST"
    )
