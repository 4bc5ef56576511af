"""Logins to Vault by hvac, with a given token or with a credential that is exchanged for one."""

from __future__ import annotations

from typing import Any

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest, Unauthorized, VaultError

from sparkcrypt.errors import KeyAccessDeniedError
from sparkcrypt.keys.vault.http import vault_http
from sparkcrypt.keys.vault.options import VaultCredential, VaultOptions
from sparkcrypt.keys.vault.refusals import quote_refusal


class HvacLogin:
    """A `VaultLogin` by hvac: it logs in, renews tokens and looks them up.

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
