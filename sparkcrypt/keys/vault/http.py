"""The HTTP session for Vault: certificates, connections, and which failures are retried."""

from __future__ import annotations

import secrets
import ssl

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

RETRIED_STATUSES = (429, 500, 502, 503, 504)
BACKOFF_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 5.0
CONNECTIONS = 32
_chance = secrets.SystemRandom()


def vault_http(ca_bundle: str | None, max_retries: int) -> requests.Session:
    """Return an HTTP session that retries with jitter on connection errors, 429 and 5xx, and on nothing else.

    Args:
        ca_bundle: certificates to trust, in PEM; the system's when None.
        max_retries: tries after the first.
    """
    session = requests.Session()
    session.auth = _add_nothing  # else a password of ~/.netrc for Vault's host would be sent
    session.verify = ca_bundle or True
    adapter = HTTPAdapter(pool_maxsize=CONNECTIONS, max_retries=_retries(max_retries))
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _add_nothing(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


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
