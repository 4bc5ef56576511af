"""How requests to Vault are sent: certificates, connections, and which failures are tried again."""

from __future__ import annotations

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

RETRIED_STATUSES = (429, 500, 502, 503, 504)
BACKOFF_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 5.0
CONNECTIONS = 32


def vault_http(ca_bundle: str | None, max_retries: int) -> requests.Session:
    """Return an HTTP session that retries with jitter on connection errors, 429 and 5xx, and on nothing else.

    Args:
        ca_bundle: certificates to trust, in PEM; the system's when None.
        max_retries: tries after the first.
    """
    session = requests.Session()
    session.verify = ca_bundle or True
    adapter = HTTPAdapter(pool_maxsize=CONNECTIONS, max_retries=_retries(max_retries))
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _retries(count: int) -> Retry:
    return Retry(
        total=count,
        # None means every method: all that is sent here may be sent twice.
        allowed_methods=None,
        status_forcelist=RETRIED_STATUSES,
        raise_on_status=False,
        redirect=False,
        backoff_factor=BACKOFF_SECONDS,
        backoff_max=BACKOFF_MAX_SECONDS,
        backoff_jitter=BACKOFF_SECONDS,
        # A server could else hold a writer for hours by a Retry-After header.
        respect_retry_after_header=False,
    )
