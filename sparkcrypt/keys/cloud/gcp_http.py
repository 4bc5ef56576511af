"""Requests to Google Cloud KMS and the meaning of its answers; the only module that uses its REST API.

Source: https://cloud.google.com/kms/docs/reference/rest, version 1, and ``google.rpc.Status`` for errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import requests

from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.cloud.gcp_credentials import GcpCredentials
from sparkcrypt.keys.cloud.gcp_options import GcpOptions
from sparkcrypt.keys.cloud.token_http import TokenHttp
from sparkcrypt.keys.service import ABSENT_ADVICE

_REASON_CHARACTERS = 200
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


class GcpHttp:
    """A client that sends requests with a token; safe for many threads.

    Args:
        options: the address and the credential.
    """

    def __init__(self, options: GcpOptions) -> None:
        self._options = options
        # ca_bundle is for the endpoint only: the token endpoint has a certificate of a public CA.
        tokens = requests.Session()
        tokens.trust_env = False
        self.credentials = GcpCredentials(options, tokens)
        self._http = TokenHttp(
            self.credentials.sign,
            timeout_seconds=options.timeout_seconds,
            ca_bundle=options.ca_bundle,
            place="endpoint",
        )

    def ask(
        self, method: str, path: str, what: str, *, body: Any = None, parameters: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Send a request, and return the JSON object of its answer.

        Args:
            method: the HTTP method.
            path: the path below ``/v1/``: a resource name, and a custom verb after ``:``.
            what: what is asked, for messages.
            body: sent as JSON.
            parameters: query parameters.

        Raises:
            ConfigError: there is no credential.
            KeyServiceError: the service refused, or did not answer.
        """
        where = f"Google Cloud KMS at {self._options.endpoint}: cannot {what}"
        status, answer = self._http.fetch(method, f"{self._options.endpoint}/v1/{path}", where, body, parameters)
        if status == 200 and answer is not None:
            return answer
        raise _translate_refusal(status, answer, where)


def _translate_refusal(http: int, answer: dict[str, Any] | None, where: str) -> KeyServiceError:
    error = (answer or {}).get("error")
    status = str(error.get("status", "")) if isinstance(error, dict) else ""
    reason = " ".join(str(error.get("message", "")).split()) if isinstance(error, dict) else ""
    reason = reason[:_REASON_CHARACTERS]
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
