"""Requests with a token to a cloud's REST API, for key services that are used without the cloud's own client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies

from sparkcrypt.errors import KeyServiceUnavailableError

_CONNECTIONS = 32


class SignRequest(Protocol):
    """A callable that returns the headers that authorise a request; ``renew`` asks for a new token."""

    def __call__(self, method: str, url: str, /, *, renew: bool) -> Mapping[str, str]:
        """Return the headers of one request."""


class TokenHttp:
    """Sends requests with a token; safe for many threads.

    Args:
        sign: returns the headers that authorise a request.
        timeout_seconds: timeout for connecting, and for waiting for bytes.
        ca_bundle: certificates that are trusted in place of those of public CAs; None: the latter.
        place: the policy's option for the address, for messages.
    """

    def __init__(self, sign: SignRequest, *, timeout_seconds: float, ca_bundle: str | None, place: str) -> None:
        self._sign, self._timeout_seconds, self._place = sign, timeout_seconds, place
        self._session = requests.Session()
        self._session.trust_env = False  # no password of ~/.netrc in place of the token
        self._session.verify = ca_bundle or True
        adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def fetch(
        self, method: str, url: str, where: str, body: Any = None, parameters: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any] | None]:
        """Send a request, and return the status of its answer and its JSON object, None if it has none.

        After a refusal of the token, a new token is tried once: the old one may be revoked and the credential still
        valid.

        Args:
            method: the HTTP method.
            url: the whole URL.
            where: the operation and the service, for messages.
            body: sent as JSON.
            parameters: query parameters.

        Raises:
            ConfigError: there is no credential.
            KeyServiceUnavailableError: there is no answer.
        """
        answer = self._send(method, url, where, body, parameters, renew=False)
        if answer.status_code == 401:
            answer = self._send(method, url, where, body, parameters, renew=True)
        return answer.status_code, _json(answer)

    def _send(
        self, method: str, url: str, where: str, body: Any, parameters: Mapping[str, str] | None, *, renew: bool
    ) -> requests.Response:
        headers = dict(self._sign(method, url, renew=renew))
        try:
            return self._session.request(
                method,
                url,
                params=dict(parameters or {}),
                json=body,
                headers=headers,
                timeout=self._timeout_seconds,
                proxies=get_environ_proxies(url),
                allow_redirects=False,  # it would carry the token to another host
            )
        except requests.RequestException as error:
            raise KeyServiceUnavailableError(
                f"{where}: no answer ({type(error).__name__}); check {self._place}, ca_bundle, and the network"
            ) from error


def _json(answer: requests.Response) -> dict[str, Any] | None:
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
