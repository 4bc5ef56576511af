"""Requests to the REST API of a key service, with a credential, for providers that do without the service's client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies

from sparkcrypt.errors import KeyServiceError, KeyServiceUnavailableError
from sparkcrypt.keys.provider import NetworkOptions

Body: TypeAlias = "Mapping[str, Any] | None"
_CONNECTIONS = 32


class SignRequest(Protocol):
    """A callable that returns the headers that authorise a request; ``renew`` asks for a new token."""

    def __call__(self, method: str, url: str, /, *, renew: bool) -> Mapping[str, str]:
        """Return the headers of one request."""


def open_session(ca_bundle: str | None) -> requests.Session:
    """Return an HTTP session that takes nothing from the environment, such as a password of ``~/.netrc``.

    Args:
        ca_bundle: certificates that are trusted in place of those of public CAs; None: the latter.
    """
    session = requests.Session()
    session.trust_env = False
    session.verify = ca_bundle or True
    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


class TokenRest:
    """Sends requests with a token; safe for many threads.

    Args:
        service: the service's name and address, for messages.
        sign: returns the headers that authorise a request.
        options: the timeout for connecting, and for waiting for bytes, and the certificates to trust.
        place: the policy's option for the address, for messages.
        translate: returns the error for an answer: its status, its JSON object, and the operation for the message.
    """

    def __init__(
        self,
        service: str,
        sign: SignRequest,
        options: NetworkOptions,
        place: str,
        translate: Callable[[int, dict[str, Any], str], KeyServiceError],
    ) -> None:
        self._service, self._sign, self._place, self._translate = service, sign, place, translate
        self._timeout_seconds, self._session = options.timeout_seconds, open_session(options.ca_bundle)

    def ask(
        self, method: str, url: str, what: str, body: Body = None, parameters: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Send a request, and return the JSON object of its answer.

        After a refusal of the token, a new token is tried once: the old one may be revoked and the credential still
        valid.

        Args:
            method: the HTTP method.
            url: the whole URL.
            what: what is asked, for messages.
            body: sent as JSON.
            parameters: query parameters.

        Raises:
            ConfigError: there is no credential.
            KeyServiceError: the service refused, or did not answer.
        """
        where = f"{self._service}: cannot {what}"
        for renew in (False, True):
            headers = dict(self._sign(method, url, renew=renew))
            try:
                answer = self._session.request(
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
            if answer.status_code != 401:
                break
        document = _read_object(answer)
        if answer.status_code == 200 and document is not None:
            return document
        raise self._translate(answer.status_code, document or {}, where)


def _read_object(answer: requests.Response) -> dict[str, Any] | None:
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
