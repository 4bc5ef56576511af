"""Refusals and missing answers of Vault: errors of its libraries are translated to those of this package."""

from __future__ import annotations

from collections.abc import Iterable

import requests
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest, RateLimitExceeded, Unauthorized, VaultError
from urllib3.exceptions import ReadTimeoutError

from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.service import ABSENT_ADVICE
from sparkcrypt.keys.vault.http import certificate_fault
from sparkcrypt.keys.vault.options import VaultOptions, encode_key_name

_REASON_CHARACTERS = 200
_TOO_OLD = "disallowed by policy (too old)"
"""Of a text that a version below ``min_decryption_version`` wrapped (keysutil's ErrTooOld)."""


def translate_refusal(
    error: VaultError, options: VaultOptions, key_id: str, doing: str, secrets: Iterable[str]
) -> KeyServiceError:
    """Return the error of this package for a refusal.

    Args:
        error: the error that hvac raised.
        options: options of the key service, for the message.
        key_id: the key that was used; ``*`` for all.
        doing: the operation, for the message.
        secrets: texts that the message must not contain.
    """
    what = f"Vault at {options.address}, mount {options.mount_point!r}: cannot {doing} key {key_id!r}"
    if isinstance(error, Forbidden | Unauthorized):
        return KeyAccessDeniedError(
            f"{what}: permission denied to the {options.auth.method} credential of this process; it "
            "lacks a policy for this path, or has expired"
        )
    reason = quote_refusal(error, secrets)
    if isinstance(error, InvalidPath) or "key not found" in reason:
        name = "" if key_id == "*" else f" under the name {encode_key_name(key_id)!r}"
        return KeyNotFoundError(f"{what}: it is not there{name}; check mount_point and namespace, {ABSENT_ADVICE}")
    if isinstance(error, InvalidRequest):
        return (KeyRetiredError if _TOO_OLD in reason else KeyServiceError)(f"{what}: {reason}")
    if isinstance(error, RateLimitExceeded):
        return KeyServiceUnavailableError(f"{what}: too many requests, also after {options.max_retries} retries")
    return KeyServiceUnavailableError(
        f"{what}: it cannot serve now ({type(error).__name__}), also after {options.max_retries} retries; "
        "is it sealed or starting?"
    )


def translate_silence(error: OSError, options: VaultOptions) -> KeyServiceError:
    """Return the error of this package for a call that Vault did not answer.

    Args:
        error: the error that requests, or reading the certificates, raised.
        options: options of the key service, for the message.
    """
    what = f"Vault at {options.address}"
    if not isinstance(error, requests.RequestException):
        return KeyServiceUnavailableError(
            f"{what}: the certificates of ca_bundle or VAULT_CACERT, {options.ca_bundle!r}, cannot be read; "
            "are they still on this machine?"
        )
    if isinstance(error, requests.exceptions.SSLError):
        return KeyServiceUnavailableError(f"{what}: {_tls_refusal(error)}")
    if isinstance(error, requests.Timeout) or _has_timed_out(error):
        return KeyServiceUnavailableError(
            f"{what} did not answer within {options.timeout_seconds:g} s, {options.max_retries + 1} times"
        )
    return KeyServiceUnavailableError(
        f"{what} cannot be reached ({type(error).__name__}); check the address and that it runs"
    )


def quote_refusal(error: Exception, secrets: Iterable[str]) -> str:
    """Return the reason in the JSON of Vault's refusal, shortened and without this process's secrets.

    Args:
        error: the error that hvac raised.
        secrets: texts that are not quoted.
    """
    words = " ".join(", ".join(map(str, getattr(error, "errors", None) or ())).split())
    for secret in filter(None, secrets):
        words = words.replace(secret, "[redacted]")
    return words[:_REASON_CHARACTERS] or "no reason given"


def _tls_refusal(error: requests.exceptions.SSLError) -> str:
    fault = certificate_fault(error)
    if fault is None:
        return (
            "no TLS connection was made; check that the address speaks TLS, and that ca_bundle or VAULT_CACERT, where "
            "one is given, holds certificates in PEM"
        )
    return (
        f"its certificate was not accepted ({fault}); name its CA by ca_bundle or VAULT_CACERT, and use an address "
        "that is in the certificate"
    )


def _has_timed_out(error: requests.RequestException) -> bool:
    """Return whether the last retry ended with a timeout, which requests reports as a connection error."""
    return isinstance(getattr(next(iter(error.args), None), "reason", None), ReadTimeoutError)
