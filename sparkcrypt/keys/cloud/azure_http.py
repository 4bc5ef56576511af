"""Requests to Azure Key Vault and Managed HSM, and their answers' meaning; the only module that uses their REST API.

Source: https://learn.microsoft.com/rest/api/keyvault/keys, version 7.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.cloud.azure_credentials import AzureCredentials
from sparkcrypt.keys.cloud.azure_options import AzureOptions
from sparkcrypt.keys.cloud.token_http import TokenHttp
from sparkcrypt.keys.service import ABSENT_ADVICE

_VERSION = {"api-version": "7.4"}
_REASON_CHARACTERS = 200
_RECOVERABLE = "ObjectIsDeletedButRecoverable"


class AzureHttp:
    """A client that sends requests with a token; safe for many threads.

    Args:
        options: the address and the credential.
    """

    def __init__(self, options: AzureOptions) -> None:
        self._options = options
        self.credentials = AzureCredentials(options)
        self._http = TokenHttp(
            self._sign, timeout_seconds=options.timeout_seconds, ca_bundle=options.ca_bundle, place="address"
        )

    def ask(self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return the JSON object of its answer.

        Args:
            method: the HTTP method.
            path: the path below the address.
            what: what is asked, for messages.
            body: sent as JSON.

        Raises:
            ConfigError: there is no credential.
            KeyServiceError: the service refused, or did not answer.
        """
        return self._fetch(method, f"{self._options.address}/{path}", what, body, _VERSION)

    def pages(self, path: str, what: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list, page by page.

        Raises:
            ConfigError, KeyServiceError: as `ask`; also if the next page is on another host, which would get the token.
        """
        answer = self.ask("GET", path, what)
        while True:
            yield from answer.get("value") or ()
            following = answer.get("nextLink")
            if not following:
                return
            if not str(following).startswith(f"{self._options.address}/"):
                raise KeyServiceError(
                    f"Azure Key Vault at {self._options.address}: cannot {what}: its list goes on at another address, "
                    "which is not asked; see that address names the vault as Azure does"
                )
            answer = self._fetch("GET", str(following), what, None, {})

    def _fetch(
        self, method: str, url: str, what: str, body: Mapping[str, Any] | None, parameters: Mapping[str, str]
    ) -> dict[str, Any]:
        where = f"Azure Key Vault at {self._options.address}: cannot {what}"
        status, answer = self._http.fetch(method, url, where, body, parameters)
        if status == 200 and answer is not None:
            return answer
        raise _translate_refusal(status, answer, where)

    def _sign(self, _method: str, _url: str, *, renew: bool) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.credentials.token(renew=renew)}"}


def _translate_refusal(http: int, answer: dict[str, Any] | None, where: str) -> KeyServiceError:
    error = (answer or {}).get("error")
    fields = error if isinstance(error, dict) else {}
    inner = fields.get("innererror")
    detail = str(inner.get("code", "")) if isinstance(inner, dict) else ""
    code, reason = str(fields.get("code", "")), " ".join(str(fields.get("message", "")).split())[:_REASON_CHARACTERS]
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
