"""Requests to Hadoop KMS and the meaning of its answers; the only module that uses its REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.hadoop.options import HadoopCredential, HadoopOptions, read_credential
from sparkcrypt.keys.service import ABSENT_ADVICE

_DELEGATION = "X-Hadoop-Delegation-Token"
_CONNECTIONS = 32
_REASON_CHARACTERS = 200
_DENYING = {"AuthorizationException", "AccessControlException", "AuthenticationException", "InvalidToken"}
_PASSING = {429, 502, 503, 504}


class KmsHttp:
    """A client that sends requests with the current credential; safe for many threads.

    Args:
        options: the address and the credential.
    """

    def __init__(self, options: HadoopOptions) -> None:
        self._options = options
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy and no password of ~/.netrc
        self._session.verify = options.ca_bundle or True
        adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

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
    reason = " ".join(str(refusal.get("message", "")).split())
    if credential.method == "token":
        reason = reason.replace(credential.secret, "[redacted]")
    reason = reason[:_REASON_CHARACTERS] or f"HTTP {answer.status_code}"
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
